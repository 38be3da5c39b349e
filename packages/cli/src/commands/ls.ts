import { formatAge, formatBytes, formatDuration } from '@coppice/console';
import type { Sandbox, SandboxState, UsageEntry } from '@coppice/protocol';
import { Option } from 'commander';
import { collect } from '../args/key-value.ts';
import { describeNetwork } from '../ui/network.ts';
import { referenceTo } from '../ui/reference.ts';
import { stateCell } from '../ui/state.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface Options {
  readonly state?: SandboxState;
  readonly label?: string[];
  readonly image?: string;
  readonly parent?: string;
  readonly project?: string;
  readonly quiet?: boolean;
}

const networkChars = 32;
const shorten = (text: string): string =>
  text.length <= networkChars ? text : `${text.slice(0, networkChars - 1)}…`;

/** By their paths inside: what is there is shared with this machine, and in no snapshot. */
const describeMounts = (mounts: Sandbox['mounts']): string =>
  mounts.map((mount) => `${mount.guest_path}${mount.read_only ? ' (ro)' : ''}`).join(', ');

const memoryOf = ({ memory_mb: limitMb, state }: Sandbox, entry: UsageEntry | undefined): string => {
  const limit = formatBytes(limitMb * 2 ** 20);
  return state === 'running' && entry?.usage ? `${formatBytes(entry.usage.memory_bytes)} of ${limit}` : limit;
};

const idleOf = (entry: UsageEntry | undefined): string =>
  entry === undefined || entry.state !== 'running'
    ? '-'
    : entry.idle_s === null
      ? 'in use'
      : formatDuration(entry.idle_s);

const states = ['creating', 'running', 'stopped', 'paused', 'failed', 'destroying'];

export const define: DefineCommand = (program, cli) => {
  verb(program, 'ls', 'List sandboxes')
    .addOption(new Option('--state <state>', 'only in this state').choices(states))
    .option('-l, --label <key=value>', 'only with this label (repeatable)', collect)
    .option('--image <image>', 'only from this image')
    .option('--parent <ref>', 'only grown from this snapshot or sandbox')
    .option('--project <project>', 'only of this project')
    .option('-q, --quiet', 'only the names')
    .action(async ({ state, label, image, parent, project, quiet }: Options) => {
      const sandboxes = await cli.coppice.sandboxes.list({
        state,
        label: label?.join(','),
        image,
        parent,
        project,
        signal: cli.signal,
      });
      // Only for people: programs ask for what they want to know (`coppice stats --json`).
      const used = new Map(
        quiet || cli.out.isJson || sandboxes.length === 0
          ? []
          : (await cli.coppice.sandboxes.usage({ project, signal: cli.signal })).map((entry) => [
              entry.id,
              entry,
            ]),
      );
      cli.out.result(sandboxes, () => {
        if (quiet) return sandboxes.map(referenceTo).join('\n');
        // Only where there is one to tell of.
        const hasMounts = sandboxes.some(({ mounts }) => mounts.length > 0);
        const rows = sandboxes.map((sandbox) => [
          referenceTo(sandbox),
          stateCell(sandbox.state),
          sandbox.image,
          sandbox.driver,
          memoryOf(sandbox, used.get(sandbox.id)),
          shorten(describeNetwork(sandbox.network)),
          idleOf(used.get(sandbox.id)),
          formatAge(sandbox.created_at, Date.now()),
          ...(hasMounts ? [describeMounts(sandbox.mounts)] : []),
        ]);
        const all = [state, label, image, parent, project].every((filter) => filter === undefined);
        return cli.out.table(
          [
            ...['NAME', 'STATE', 'IMAGE', { head: 'DRIVER', drop: 2 }, 'MEMORY', 'NETWORK', 'IDLE'],
            { head: 'CREATED', drop: 1 },
            ...(hasMounts ? ['SHARED'] : []),
          ],
          rows,
          all ? 'No sandboxes. Make one with `coppice create`.' : 'No such sandboxes.',
        );
      });
    });
};
