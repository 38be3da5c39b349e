import type { Ledger } from '../ledger/ledger.ts';
import type { Caller } from './caller.ts';
import { inputOf, type Usage } from './usage.ts';

/** What the calls of one run usually take, learnt from those that were reported whole. */
interface Habits {
  /** Tokens of input for a byte of request, of the newest call: prompts of a run grow at their end. */
  inputPerByte: number;
  /** Tokens of output for a byte that the model wrote visibly; thoughts that are not sent count here. */
  outputPerByte: number;
  /** Tokens of the newest answers. */
  readonly outputs: number[];
}

const firstOutput = 4_096;
const largestUsualOutput = 16_384;
const kept = 64;
const maxRuns = 4_096;
const bytesPerToken = 4;

/** Guesses before a call, and estimates for calls that were cut. */
export class RunHabits {
  readonly #ledger: Ledger;
  readonly #runs = new Map<string, Habits>();

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
  }

  inputEstimate(caller: Caller, requestBytes: number): number {
    return Math.ceil(requestBytes * this.#of(caller).inputPerByte);
  }

  outputEstimate(caller: Caller, textBytes: number): number {
    return Math.ceil(textBytes * this.#of(caller).outputPerByte);
  }

  /** 19 of 20 answers of this run are no longer. */
  usualOutput(caller: Caller): number {
    const { outputs } = this.#of(caller);
    if (outputs.length === 0) return firstOutput;
    const sorted = outputs.toSorted((one, other) => one - other);
    const usual = sorted[Math.ceil(sorted.length * 0.95) - 1]!;
    // A few short answers say little about the next one.
    return Math.min(
      largestUsualOutput,
      outputs.length < 8 ? Math.max(firstOutput, usual) : Math.max(256, usual),
    );
  }

  learn(caller: Caller, requestBytes: number, usage: Usage, textBytes: number): void {
    const habits = this.#of(caller);
    add(habits, requestBytes, usage);
    if (textBytes > 0) habits.outputPerByte = clamp(usage.output / textBytes, 1 / 8, 4);
  }

  #of(caller: Caller): Habits {
    const key = JSON.stringify([caller.sandbox, caller.run ?? null]);
    const known = this.#runs.get(key);
    if (known !== undefined) return known;
    const habits: Habits = { inputPerByte: 1 / bytesPerToken, outputPerByte: 1 / bytesPerToken, outputs: [] };
    for (const call of this.#ledger.recent(caller, kept).toReversed())
      add(habits, call.requestBytes, call.usage);
    if (this.#runs.size >= maxRuns) this.#runs.delete(this.#runs.keys().next().value!);
    this.#runs.set(key, habits);
    return habits;
  }
}

const add = (habits: Habits, requestBytes: number, usage: Usage): void => {
  // An upstream that reports next to nothing must not make the next calls look free.
  if (requestBytes > 0) habits.inputPerByte = clamp(inputOf(usage) / requestBytes, 1 / 16, 2);
  habits.outputs.push(usage.output);
  if (habits.outputs.length > kept) habits.outputs.shift();
};

const clamp = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value));
