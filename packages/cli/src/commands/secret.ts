import { formatAge } from '@coppice/console';
import type { SecretUse } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { collect } from '../args/key-value.ts';
import { readSecret } from '../read-password.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface UseOptions {
  readonly host?: string[];
  readonly method?: string[];
  readonly path?: string[];
  readonly git?: string[];
  readonly header?: string;
  readonly basic?: string;
  readonly query?: string;
}

/** Undefined where nothing is said of it: it is then put where it was before. */
function useOf({
  host,
  method = [],
  path = [],
  git = [],
  header,
  basic,
  query,
}: UseOptions): SecretUse | undefined {
  const places = [header, basic, query].filter((place) => place !== undefined).length;
  if (host === undefined && places === 0 && method.length + path.length + git.length === 0) return undefined;
  if (host === undefined || places !== 1)
    throw new CoppiceError(
      'invalid_argument',
      'a secret for requests needs a host, and one place to be put',
      {
        hint: "For example: --host api.example.com --header 'authorization: Bearer {}'",
      },
    );
  const [, name = '', format = ''] = /^([^:]+):\s*(.*)$/.exec(header ?? '') ?? [];
  if (header !== undefined && !format.includes('{}'))
    throw new CoppiceError('invalid_argument', `the header ${header} does not say where the value goes`, {
      hint: "For example: --header 'authorization: Bearer {}'",
    });
  const place: SecretUse['place'] =
    header !== undefined
      ? { kind: 'header', name, format }
      : basic !== undefined
        ? { kind: 'basic', user: basic }
        : { kind: 'query', name: query ?? '' };
  const rules = git.map((text) => {
    const [repository = '', branches = ''] = text.split('=', 2);
    return { repository, push: branches === '' ? [] : branches.split(',') };
  });
  return { hosts: host, methods: method, paths: path, git: rules, place };
}

export const define: DefineCommand = (program, cli) => {
  const secret = verb(program, 'secret', 'Keep keys in the gateway, out of every sandbox');
  verb(secret, 'set', 'Create a secret in the gateway, or change its value; reads standard input')
    .argument('<name>', 'what models.json calls it, or sandboxes that `--allow secret:NAME`')
    .option(
      '--host <name>',
      'put it into requests to this host: a name, *.name or name:port (repeatable)',
      collect,
    )
    .option('--method <method>', 'of these methods alone, such as GET (repeatable)', collect)
    .option('--path <path>', 'of these paths alone, * at the end for any rest (repeatable)', collect)
    .option(
      '--git <repository[=branches]>',
      'for git alone: fetch this repository, and push to these branches: me/app=agent/*,fix/* (repeatable)',
      collect,
    )
    .option('--header <header>', "as this header; {} stands for the value: 'authorization: Bearer {}'")
    .option('--basic <user>', 'as the password of this user in basic authentication')
    .option('--query <parameter>', 'as this parameter of the query')
    .addHelpText(
      'after',
      examples(
        'coppice secret set anthropic < key.txt',
        "coppice secret set gh --host api.github.com --header 'authorization: Bearer {}' < token.txt",
        'coppice create dev --allow api.github.com --allow secret:gh',
      ),
    )
    .action(async (name: string, options: UseOptions) => {
      const use = useOf(options);
      const value = await readSecret(cli, name);
      await cli.coppice.secrets.set(name, value, {
        signal: cli.signal,
        ...(use === undefined ? {} : { use }),
      });
      cli.out.result({ name }, () => `${name} is set. It never leaves the gateway.`);
    });
  verb(secret, 'ls', 'List the names of secrets').action(async () => {
    const secrets = await cli.coppice.secrets.list({ signal: cli.signal });
    const age = (ms: number): string => formatAge(new Date(ms).toISOString(), Date.now());
    cli.out.result(secrets, () =>
      cli.out.table(
        ['NAME', 'SET', 'HOSTS'],
        secrets.map(({ name, changed_ms: ms, use }) => [name, age(ms), use?.hosts.join(', ') ?? '-']),
        'No secrets.',
      ),
    );
  });
  verb(
    secret,
    'rekey',
    'Seal every secret with another key: a fresh one, or what key_command prints now',
  ).action(async () => {
    await cli.coppice.secrets.rekey({ signal: cli.signal });
    cli.out.result({}, () => 'Every secret is sealed with the new key.');
  });
  verb(secret, 'rm', 'Delete a secret')
    .argument('<name>', 'of the secret')
    .action(async (name: string) => {
      await cli.coppice.secrets.remove(name, { signal: cli.signal });
      cli.out.result({ removed: name }, () => `removed ${name}`);
    });
};
