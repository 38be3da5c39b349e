import type { RunningDaemon } from '@coppice/testkit';

/** Create → first output of a command; the end of the sandbox is not in the time, as it is not in that of the peers. */
export const firstOutputMs = async (daemon: RunningDaemon, from: 'pool' | 'cold'): Promise<number> => {
  const startedMs = performance.now();
  const sandbox = await daemon.client.sandboxes.create();
  const { stdout } = await sandbox.exec([...outputCommand]);
  const tookMs = performance.now() - startedMs;
  if (stdout !== 'ready\n') throw new Error(`the sandbox answered ${JSON.stringify(stdout)}`);
  const created = sandbox.info as { readonly from_pool?: boolean } | undefined;
  if (created?.from_pool !== (from === 'pool')) throw new Error(`the sandbox did not come from: ${from}`);
  await sandbox.destroy();
  return tookMs;
};

/** What the peers run as well. */
export const outputCommand = ['/bin/echo', 'ready'] as const;
