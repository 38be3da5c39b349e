import { parseDurationSeconds } from '../args/duration.ts';
import { formatAge } from '../ui/format.ts';
import { table } from '../ui/table.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface CreateOptions {
  readonly sandbox?: string;
  readonly expires?: number;
}

export const define: DefineCommand = (program, cli) => {
  const token = verb(program, 'token', 'Create, list and revoke tokens');
  verb(token, 'create', 'Create a token; its secret is shown this once')
    .argument('<name>', 'what it is for')
    .option('--sandbox <sandbox>', 'for this sandbox only (default: admin)')
    .option('--expires <time>', 'valid for this long, such as 12h or 30d', parseDurationSeconds)
    .action(async (name: string, { sandbox, expires }: CreateOptions) => {
      const { signal } = cli;
      const scope =
        sandbox === undefined
          ? 'admin'
          : `sandbox:${(await cli.coppice.sandboxes.get(sandbox, { signal })).id}`;
      const expiry = expires === undefined ? {} : { expires_in_s: expires };
      const created = await cli.coppice.tokens.create({ name, scope, ...expiry, signal });
      cli.out.result(created, () => created.secret);
    });
  verb(token, 'ls', 'List tokens').action(async () => {
    const tokens = await cli.coppice.tokens.list({ signal: cli.signal });
    const rows = tokens.map((found) => [
      found.name,
      found.scope,
      formatAge(found.created_at, Date.now()),
      found.expires_at ?? 'never',
      found.last_used_at === null ? 'never' : formatAge(found.last_used_at, Date.now()),
      found.id,
    ]);
    cli.out.result(tokens, () =>
      table(['NAME', 'SCOPE', 'CREATED', 'EXPIRES', 'USED', 'ID'], rows, 'No tokens.'),
    );
  });
  verb(token, 'revoke', 'Revoke a token')
    .argument('<token>', 'id or name')
    .action(async (ref: string) => {
      await cli.coppice.tokens.revoke(ref, { signal: cli.signal });
      cli.out.result({ revoked: ref }, () => `revoked ${ref}`);
    });
};
