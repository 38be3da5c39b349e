import { CoppiceError } from '@coppice/protocol/errors';
import type { Cli } from '../cli.ts';

interface RaceOptions {
  readonly judge: string;
  readonly n: number;
  readonly from?: number;
  readonly message?: readonly string[];
  readonly merge: boolean;
}

interface Entry {
  readonly run: string;
  readonly exit_code: number | null;
  readonly output: string;
  readonly duration_ms: number;
}

const judgeMs = 600_000;

/** Forks of one moment, judged when each has ended. What the winner changed is merged into the sandbox of the run. */
export async function race(
  cli: Cli,
  ref: string,
  { judge, n, from, message = [], merge }: RaceOptions,
): Promise<{ entries: Entry[]; winner: string | null; merged: boolean }> {
  const { coppice, signal } = cli;
  if (n < 2 || n > 20) throw new CoppiceError('invalid_argument', '--n must be from 2 to 20');
  if (message.length > 1 && message.length !== n)
    throw new CoppiceError('invalid_argument', `give one message for all, or one for each of the ${n} forks`);
  const run = await coppice.runs.get(ref, { signal });
  const forks = await Promise.all(
    Array.from({ length: n }, (_, index) => {
      const told = message[message.length > 1 ? index : 0];
      return coppice.runs.fork(run.id, {
        ...(from === undefined ? {} : { from }),
        ...(told === undefined ? {} : { message: told }),
        signal,
      });
    }),
  );
  const entries = await Promise.all(
    forks.map(async ({ id, name }): Promise<Entry> => {
      const ended = await coppice.runs.wait(id, { signal });
      const duration_ms = Date.parse(ended.ended_at!) - Date.parse(ended.created_at);
      if (ended.sandbox_id === null) return { run: name, exit_code: null, output: ended.reason, duration_ms };
      const { exit_code, stdout, stderr } = await coppice.sandboxes
        .at(ended.sandbox_id)
        .exec(judge, { timeout_ms: judgeMs, signal, ...(run.repo === null ? {} : { cwd: run.repo.path }) });
      return { run: name, exit_code, output: `${stdout}${stderr}`.slice(-4000), duration_ms };
    }),
  );
  const winner = entries
    .filter(({ exit_code }) => exit_code === 0)
    .sort((a, b) => a.duration_ms - b.duration_ms)[0];
  if (winner === undefined || !merge || run.sandbox_id === null)
    return { entries, winner: winner?.run ?? null, merged: false };
  const { sandbox_id: from_ } = await coppice.runs.get(winner.run, { signal });
  await coppice.sandboxes.at(run.sandbox_id).merge(from_!, { prefer: 'theirs', signal });
  return { entries, winner: winner.run, merged: true };
}
