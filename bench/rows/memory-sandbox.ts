import type { Sandbox } from '@coppice/sdk';
import { eventually, type RunningDaemon } from '@coppice/testkit';
import type { BenchContext } from '../harness/bench-context.ts';
import { holdMemoryCommand, readyFile } from '../peers/memory-holder.ts';

/** How much the process of the memory rows holds. */
export const heldMb = (context: BenchContext): number => context.amount(256, 16);

/** A gVisor sandbox with a live process that holds memory. */
export const memorySandbox = async (context: BenchContext, daemon: RunningDaemon): Promise<Sandbox> => {
  const sandbox = await daemon.client.sandboxes.create({ driver: 'gvisor', memory_mb: 1024 });
  await sandbox.jobs.start(['/bin/bash', '-c', holdMemoryCommand(heldMb(context))]);
  await eventually('the sandbox holds its memory', async () => {
    const { exit_code: code } = await sandbox.exec(['test', '-s', readyFile]);
    return code === 0;
  });
  return sandbox;
};
