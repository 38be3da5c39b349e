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

/** The same rounds in every run: a generator with a fixed seed (Park and Miller's), and the shuffle of Fisher and Yates. */
const shuffler = (): (<T>(items: readonly T[]) => T[]) => {
  let state = 1;
  return (items) => {
    const shuffled = [...items];
    for (let last = shuffled.length - 1; last > 0; last -= 1) {
      state = (state * 48_271) % 0x7fff_ffff;
      const chosen = state % (last + 1);
      [shuffled[last], shuffled[chosen]] = [shuffled[chosen]!, shuffled[last]!];
    }
    return shuffled;
  };
};

/**
 * A B C, B A C, …, or A A B B C C, … with longer turns: whatever the machine does beside is shared by all. Each round has an order
 * of its own, as in a fixed one some would always pay for what their neighbour left to be done. The first round warms caches
 * and is thrown away.
 */
export const interleave = async <Name extends string>(
  series: Readonly<Record<Name, Measure>>,
  { rounds, turn = 1, budgetMs, signal }: InterleaveOptions,
): Promise<Record<Name, Summary>> => {
  const names = Object.keys(series) as Name[];
  const samples = new Map<Name, number[]>(names.map((name) => [name, []]));
  const shuffle = shuffler();
  const endMs = performance.now() + budgetMs;
  for (let round = 0; round <= rounds; round += 1) {
    if (round > leastRounds && performance.now() > endMs) break;
    for (const name of round === 0 ? names : shuffle(names)) {
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
