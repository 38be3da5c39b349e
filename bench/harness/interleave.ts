import { type Summary, summarize } from './summary.ts';

export interface InterleaveOptions {
  readonly rounds: number;
  /** How often each is measured in a row before the next one's turn; once unless told otherwise. */
  readonly turn?: number;
  /** No further round begins after that; three are always run, or as many as asked for where that is fewer. */
  readonly budgetMs: number;
  readonly signal: AbortSignal;
}

/** One measurement, in milliseconds. What it must set up and take down is outside what it reports. */
export type Measure = (round: number) => Promise<number>;

const leastRounds = 3;

/**
 * A B C, A B C, …, or A A B B C C, … with longer turns: whatever the machine does beside is shared by all. The first round
 * warms caches and is thrown away.
 */
export const interleave = async <Name extends string>(
  series: Readonly<Record<Name, Measure>>,
  { rounds, turn = 1, budgetMs, signal }: InterleaveOptions,
): Promise<Record<Name, Summary>> => {
  const names = Object.keys(series) as Name[];
  const samples = new Map<Name, number[]>(names.map((name) => [name, []]));
  const endMs = performance.now() + budgetMs;
  for (let round = 0; round <= rounds; round += 1) {
    if (round > leastRounds && performance.now() > endMs) break;
    for (const name of names) {
      for (let time = 0; time < turn; time += 1) {
        signal.throwIfAborted();
        const elapsedMs = await series[name](round);
        if (round > 0) samples.get(name)?.push(elapsedMs);
      }
    }
  }
  return Object.fromEntries([...samples].map(([name, values]) => [name, summarize(values)])) as Record<
    Name,
    Summary
  >;
};

export const elapsedMs = async (work: () => Promise<unknown>): Promise<number> => {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
};
