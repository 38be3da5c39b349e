import { formatAge, formatBytes, formatDuration, formatSize, plural } from '@coppice/console';
import type { SandboxDetail } from '@coppice/protocol';
import { describeNetwork } from '../ui/network.ts';
import { stateCell } from '../ui/state.ts';
import type { Cell } from '../ui/table.ts';
import { type DefineCommand, verb } from '../verb.ts';

const none = (text: string): string => (text === '' ? 'none' : text);

const mountRows = (mounts: SandboxDetail['mounts']): [string, string][] =>
  mounts.length === 0
    ? [['mounted', 'nothing']]
    : mounts.map(({ host_path: host, guest_path: guest, read_only: readOnly }, index) => [
        index === 0 ? 'mounted' : '',
        `${host} at ${guest} (shared${readOnly ? ', read-only' : ''}; not part of snapshots, forks, diffs and merges)`,
      ]);

const rows = (sandbox: SandboxDetail, nowMs: number): [string, Cell][] => {
  const { usage, snapshots } = sandbox;
  const labels = Object.entries(sandbox.labels).map(([key, value]) =>
    value === '' ? key : `${key}=${value}`,
  );
  return [
    ['name', sandbox.name],
    ['id', sandbox.id],
    ['state', stateCell(sandbox.state, sandbox.failure ?? '')],
    ['image', sandbox.image],
    ['driver', sandbox.driver],
    ['created', formatAge(sandbox.created_at, nowMs)],
    ['hostname', sandbox.hostname],
    ['address', sandbox.address ?? 'none'],
    ['network', describeNetwork(sandbox.network)],
    ['ports', none(sandbox.forwards.map((forward) => `${forward.url} -> ${forward.guest_port}`).join(', '))],
    ['cpus', String(sandbox.cpus)],
    [
      'memory',
      `${usage ? `${formatBytes(usage.memory_bytes)} of ` : ''}${formatBytes(sandbox.memory_mb * 2 ** 20)}`,
    ],
    [
      'disk',
      `${usage ? `${formatBytes(usage.disk_referenced_bytes)} of ` : ''}${formatBytes(sandbox.disk_mb * 2 ** 20)}`,
    ],
    [
      'snapshots',
      `${snapshots.count} of ${snapshots.max_count}, ${formatSize(snapshots.held_bytes)} of ${formatBytes(snapshots.max_bytes)}`,
    ],
    ['processes', `${usage ? `${usage.pids} of ` : ''}${sandbox.pids}`],
    ['out of memory', usage && usage.oom_kills > 0 ? plural(usage.oom_kills, 'kill') : 'never'],
    ['variables', none(sandbox.env_names.join(', '))],
    ['labels', none(labels.join(', '))],
    ...mountRows(sandbox.mounts),
    ['grown from', sandbox.parent?.snapshot_id ?? 'its image'],
    [
      'when idle',
      sandbox.idle_timeout_s === null
        ? 'keeps running'
        : `${sandbox.idle_action} after ${formatDuration(sandbox.idle_timeout_s)}`,
    ],
    [
      'lifetime',
      sandbox.max_lifetime_s === null ? 'no end' : `at most ${formatDuration(sandbox.max_lifetime_s)}`,
    ],
  ];
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'info', 'Show everything about a sandbox')
    .argument('<sandbox>', 'name or id')
    .action(async (ref: string) => {
      const detail = await cli.coppice.sandboxes.at(ref).inspect({ signal: cli.signal });
      cli.out.result(detail, () => cli.out.facts(rows(detail, Date.now())));
    });
};
