import type { BenchContext } from './bench-context.ts';
import type { Summary } from './summary.ts';
import type { Target } from './target.ts';

/** What was found for one target. */
export interface Finding {
  readonly value: number;
  readonly ours?: Summary;
  readonly peer?: Summary;
}

/** One kind of work. Each target has a name, and `run` answers with a finding for each of these names. */
export interface Row<Name extends string = string> {
  readonly name: string;
  readonly title: string;
  readonly targets: Readonly<Record<Name, Target>>;
  run(context: BenchContext): Promise<Readonly<Record<Name, Finding>>>;
}

/** Checks that the findings answer the targets, at compile time. */
export const defineRow = <Name extends string>(row: Row<Name>): Row<Name> => row;

/** Thrown by a row that cannot be measured on this machine; the reason stands in the results. */
export class NotMeasured extends Error {}

export const medianRatio = (ours: Summary, peer: Summary): Finding => ({
  value: ours.median / peer.median,
  ours,
  peer,
});
