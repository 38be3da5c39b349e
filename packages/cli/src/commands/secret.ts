import { readSecret } from '../read-password.ts';
import { formatAge } from '../ui/format.ts';
import { table } from '../ui/table.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  const secret = verb(program, 'secret', 'Keep keys in the gateway, out of every sandbox');
  verb(secret, 'set', 'Give the gateway a secret, or another value for it; it is read from standard input')
    .argument('<name>', 'what models.json calls it')
    .addHelpText('after', examples('coppice secret set anthropic < key.txt'))
    .action(async (name: string) => {
      const value = await readSecret(cli, name);
      await cli.coppice.secrets.set(name, value, { signal: cli.signal });
      cli.out.result({ name }, () => `${name} is set. It never leaves the gateway.`);
    });
  verb(secret, 'ls', 'List the names of secrets').action(async () => {
    const secrets = await cli.coppice.secrets.list({ signal: cli.signal });
    const age = (ms: number): string => formatAge(new Date(ms).toISOString(), Date.now());
    cli.out.result(secrets, () =>
      table(
        ['NAME', 'SET'],
        secrets.map(({ name, changed_ms: ms }) => [name, age(ms)]),
        'No secrets.',
      ),
    );
  });
  verb(secret, 'rm', 'Forget a secret')
    .argument('<name>', 'of the secret')
    .action(async (name: string) => {
      await cli.coppice.secrets.remove(name, { signal: cli.signal });
      cli.out.result({ removed: name }, () => `removed ${name}`);
    });
};
