import { formatAge } from '@coppice/console';
import { CoppiceError, defaultProject, type Quota } from '@coppice/protocol';
import { parseDurationSeconds } from '../args/duration.ts';
import { parseWhole } from '../args/number.ts';
import { parseMegabytes } from '../args/size.ts';
import type { Cli } from '../cli.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface CreateOptions {
  readonly admin?: boolean;
  readonly project?: string;
  readonly sandbox?: string;
  readonly readOnly?: boolean;
  readonly person?: string;
  readonly maxSandboxes?: number;
  readonly maxMemory?: number;
  readonly maxDisk?: number;
  readonly maxSnapshots?: number;
  readonly expires?: number;
}

/** One at most: what a token reaches must not depend on which option wins. */
const scopeOf = async (cli: Cli, { admin, project, sandbox }: CreateOptions): Promise<string> => {
  if ([admin, project, sandbox].filter((given) => given !== undefined).length > 1)
    throw new CoppiceError('invalid_argument', 'a token is for one of --admin, --project and --sandbox');
  if (admin) return 'admin';
  if (sandbox === undefined) return `project:${project ?? defaultProject}`;
  return `sandbox:${(await cli.coppice.sandboxes.get(sandbox, { signal: cli.signal })).id}`;
};

const quotaOf = (options: CreateOptions): { quota?: Partial<Quota> } => {
  const { maxSandboxes: sandboxes, maxMemory: memory, maxDisk: disk, maxSnapshots: snapshots } = options;
  const quota = { sandboxes, memory_mb: memory, disk_mb: disk, snapshots };
  return Object.values(quota).every((most) => most === undefined) ? {} : { quota };
};

export const define: DefineCommand = (program, cli) => {
  const token = verb(program, 'token', 'Create, list and revoke tokens');
  verb(token, 'create', 'Create a token; its secret is shown only once')
    .argument('<name>', 'what it is for')
    .option('--project <project>', 'for what belongs to this project (default: default)')
    .option('--sandbox <sandbox>', 'for this sandbox only')
    .option('--admin', 'for everything: whoever has it can become root on this machine')
    .option('--read-only', 'to look only: it changes nothing and runs nothing')
    .option('--person <name>', 'whose it is; tokens of one person share a quota')
    .option('--max-sandboxes <number>', 'quota: sandboxes at once', parseWhole)
    .option('--max-memory <size>', 'quota: memory of these together, such as 8g', parseMegabytes)
    .option('--max-disk <size>', 'quota: disk of these together, such as 50g', parseMegabytes)
    .option('--max-snapshots <number>', 'quota: snapshots', parseWhole)
    .option('--expires <time>', 'valid for this long, such as 12h or 30d', parseDurationSeconds)
    .addHelpText(
      'after',
      examples(
        'coppice token create ci --project web --max-sandboxes 10 --expires 30d',
        'coppice token create ana --project web --person ana',
        'coppice token create watch --project web --read-only',
      ),
    )
    .action(async (name: string, options: CreateOptions) => {
      const { expires, person, readOnly } = options;
      const created = await cli.coppice.tokens.create({
        name,
        scope: await scopeOf(cli, options),
        role: readOnly ? 'read' : 'full',
        ...(person === undefined ? {} : { person }),
        ...quotaOf(options),
        ...(expires === undefined ? {} : { expires_in_s: expires }),
        signal: cli.signal,
      });
      cli.out.result(created, () => created.secret);
    });
  verb(token, 'ls', 'List tokens').action(async () => {
    const tokens = await cli.coppice.tokens.list({ signal: cli.signal });
    const rows = tokens.map((found) => [
      found.name,
      found.role === 'read' ? `${found.scope} (read)` : found.scope,
      found.person ?? '-',
      formatAge(found.created_at, Date.now()),
      found.expires_at ?? 'never',
      found.last_used_at === null ? 'never' : formatAge(found.last_used_at, Date.now()),
      found.id,
    ]);
    cli.out.result(tokens, () =>
      cli.out.table(['NAME', 'SCOPE', 'PERSON', 'CREATED', 'EXPIRES', 'USED', 'ID'], rows, 'No tokens.'),
    );
  });
  verb(token, 'revoke', 'Revoke a token')
    .argument('<token>', 'id or name')
    .action(async (ref: string) => {
      await cli.coppice.tokens.revoke(ref, { signal: cli.signal });
      cli.out.result({ revoked: ref }, () => `revoked ${ref}`);
    });
};
