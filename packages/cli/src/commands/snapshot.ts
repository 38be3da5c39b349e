import { formatBytes } from '@coppice/console';
import type { Command } from 'commander';
import { addSnapshotOptions, type SnapshotFlags, snapshotFields } from '../args/snapshot-options.ts';
import type { Cli } from '../cli.ts';
import { noteLeftOut } from '../ui/left-out.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

/** `checkpoint` is `snapshot --memory` by name. */
export const snapshotAction =
  (cli: Cli, always: { readonly memory: boolean }) =>
  async (
    ref: string,
    name: string | undefined,
    options: SnapshotFlags & { memory?: boolean },
  ): Promise<void> => {
    const memory = always.memory || options.memory === true;
    const snapshot = await cli.out.during(memory ? 'keeping files and memory' : 'taking a snapshot', () =>
      cli.coppice.sandboxes
        .at(ref)
        .snapshot({ ...snapshotFields(name, options), ...(memory ? { memory } : {}), signal: cli.signal }),
    );
    noteLeftOut(cli, snapshot.left_out);
    const { pause_ms: pauseMs, memory_bytes: memoryBytes } = snapshot;
    const paused = pauseMs === null ? '' : `, ${pauseMs.toFixed(1)} ms pause`;
    const kept = memoryBytes === null ? '' : `, ${formatBytes(memoryBytes)} of memory`;
    cli.out.result(snapshot, () => `${snapshot.name}  ${snapshot.id}  (${snapshot.engine}${kept}${paused})`);
  };

export const define: DefineCommand = (program, cli) => {
  const command: Command = addSnapshotOptions(verb(program, 'snapshot', 'Take a snapshot of a sandbox'));
  command
    .option('--memory', 'keep the memory of its processes too')
    .addHelpText('after', examples('coppice snapshot dev baseline --note "tests pass"'))
    .action(snapshotAction(cli, { memory: false }));
};
