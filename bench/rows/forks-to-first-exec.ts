import type { RunningDaemon } from '@coppice/testkit';

/** From the call until each of the forks has answered; they are destroyed outside of the time. */
export const forksToFirstExecMs = async (
  daemon: RunningDaemon,
  snapshotId: string,
  count: number,
): Promise<number> => {
  const startedMs = performance.now();
  const { sandboxes, failures } = await daemon.client.snapshots.fork(snapshotId, { count });
  await Promise.all(sandboxes.map((fork) => fork.exec(['true'])));
  const tookMs = performance.now() - startedMs;
  if (failures.length > 0) throw new Error(`a fork failed: ${failures[0]?.message}`);
  await Promise.all(sandboxes.map((fork) => fork.destroy()));
  return tookMs;
};
