import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes, formatDuration } from '@coppice/console';
import type { UsageEntry } from '@coppice/protocol';
import { parseDurationMs } from '../args/duration.ts';
import { expandSandboxes } from '../args/pattern.ts';
import type { Cli } from '../cli.ts';
import { LiveText } from '../ui/live-text.ts';
import { referenceTo } from '../ui/reference.ts';
import { stateCell } from '../ui/state.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly once?: boolean;
  readonly every: number;
  readonly project?: string;
}

interface Sample {
  readonly atMs: number;
  readonly entries: readonly UsageEntry[];
}

/** Of all processors of the machine together, 100 % for each. */
const share = (entry: UsageEntry, { entries, atMs }: Sample, before: Sample | undefined): string => {
  const earlier = before?.entries.find(({ id }) => id === entry.id)?.usage;
  if (entry.usage === null || entry.state !== 'running') return '-';
  if (before === undefined || !earlier || entries === before.entries) return '…';
  const usec = Math.max(0, entry.usage.cpu_usec - earlier.cpu_usec);
  return `${((usec / 1000 / (atMs - before.atMs)) * 100).toFixed(1)} %`;
};

const of = (used: number | undefined, limitMb: number): string =>
  used === undefined ? '-' : `${formatBytes(used)} / ${formatBytes(limitMb * 2 ** 20)}`;

const draw = (cli: Cli, now: Sample, before: Sample | undefined): string =>
  cli.out.table(
    ['NAME', 'STATE', 'CPU', 'MEMORY', 'DISK', 'PROCESSES', 'IDLE'],
    now.entries.map((entry) => [
      referenceTo(entry),
      stateCell(entry.state),
      share(entry, now, before),
      of(entry.state === 'running' ? entry.usage?.memory_bytes : undefined, entry.memory_mb),
      of(entry.usage?.disk_referenced_bytes, entry.disk_mb),
      entry.state === 'running' && entry.usage ? `${entry.usage.pids} / ${entry.pids}` : '-',
      entry.idle_s === null ? 'in use' : formatDuration(entry.idle_s),
    ]),
    'No sandboxes.',
  );

export const define: DefineCommand = (program, cli) => {
  verb(program, 'stats', 'Show what sandboxes use: CPU, memory, disk, processes')
    .argument('[sandbox...]', "only these; * and ? stand for letters: 'dev-*'")
    .option('--once', 'once, instead of until Ctrl-C')
    .option('--every <time>', 'how often', parseDurationMs, 1000)
    .option('--project <project>', 'only of this project')
    .addHelpText('after', examples('coppice stats', "coppice stats 'dev-*' --once"))
    .action(async (refs: string[], { once, every, project }: Options) => {
      const { signal } = cli;
      const wanted = refs.length === 0 ? undefined : new Set(await expandSandboxes(cli, refs));
      const look = async (): Promise<Sample> => {
        const all = await cli.coppice.sandboxes.usage({ project, signal });
        const entries = all.filter(
          (entry) => wanted === undefined || wanted.has(referenceTo(entry)) || wanted.has(entry.id),
        );
        return { atMs: performance.now(), entries };
      };
      let before: Sample | undefined;
      let now = await look();
      if (once || cli.out.isJson || !cli.io.stdout.isTTY) {
        before = now;
        // What a processor does is known from two looks.
        await sleep(Math.min(every, 500), undefined, { signal });
        now = await look();
        cli.out.result(now.entries, () => draw(cli, now, before));
        return;
      }
      const live = new LiveText(cli.io.stdout, () => draw(cli, now, before));
      try {
        while (!signal.aborted) {
          await sleep(every, undefined, { signal });
          [before, now] = [now, await look()];
          live.redraw();
        }
      } catch (error) {
        // Ctrl-C is how one leaves.
        if (!signal.aborted) throw error;
      } finally {
        live.end();
        cli.out.result(now.entries, () => draw(cli, now, before));
      }
    });
};
