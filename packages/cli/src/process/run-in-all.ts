import { printable } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { exitCodeOf } from '../exit-code.ts';
import { LiveText } from '../ui/live-text.ts';
import { table } from '../ui/table.ts';

export interface Target {
  /** What it is called on the command line. */
  readonly name: string;
  readonly sandbox: Sandbox;
}

export interface RunOutcome {
  readonly sandbox: string;
  readonly sandbox_id: string;
  /** Null when the command could not be run at all; `error` says why. */
  readonly exit_code: number | null;
  readonly duration_ms: number;
  /** The end of both streams, as they came. */
  readonly output: string;
  readonly error: string | null;
}

interface Options {
  readonly fields: { readonly user?: string; readonly cwd?: string; readonly env?: Record<string, string> };
  /** How many run at once. */
  readonly parallel: number;
}

/** Of each command; the rest can be had by running it in one sandbox alone. */
const keptBytes = 64 * 1024;
const shownLines = 10;

type State = 'waits' | 'runs' | 'ended';

/** One command in one sandbox. */
class Run {
  readonly target: Target;
  state: State = 'waits';
  outcome: RunOutcome | undefined;
  #startedMs = 0;
  #tail = Buffer.alloc(0);

  constructor(target: Target) {
    this.target = target;
  }

  async go(command: string | string[], { fields }: Options, signal: AbortSignal): Promise<void> {
    this.#startedMs = performance.now();
    this.state = 'runs';
    try {
      signal.throwIfAborted();
      const process = await this.target.sandbox.execStream(command, { ...fields, signal });
      const stop = () => process.close();
      signal.addEventListener('abort', stop, { once: true });
      try {
        await process.endInput();
        for await (const { data, release } of process) {
          this.#keep(Buffer.from(data));
          release();
        }
        this.#end(exitCodeOf(await process.exit), null);
      } finally {
        signal.removeEventListener('abort', stop);
        process.close();
      }
    } catch (error) {
      this.#end(null, signal.aborted ? 'interrupted' : (error as Error).message);
    }
  }

  get elapsedMs(): number {
    if (this.state === 'waits') return 0;
    return this.outcome?.duration_ms ?? performance.now() - this.#startedMs;
  }

  get lastLine(): string {
    return this.#tail.toString().trimEnd().split('\n').at(-1) ?? '';
  }

  #keep(data: Buffer): void {
    this.#tail = Buffer.concat([this.#tail, data]);
    if (this.#tail.length > keptBytes) this.#tail = this.#tail.subarray(this.#tail.length - keptBytes);
  }

  #end(exitCode: number | null, error: string | null): void {
    this.outcome = {
      sandbox: this.target.name,
      sandbox_id: this.target.sandbox.id,
      exit_code: exitCode,
      duration_ms: Math.round(performance.now() - this.#startedMs),
      output: this.#tail.toString(),
      error,
    };
    this.state = 'ended';
  }
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

const resultOf = ({ state, outcome }: Run): string => {
  if (state !== 'ended') return state;
  if (outcome?.exit_code === 0) return 'ok';
  return outcome?.exit_code === null || outcome === undefined ? 'failed' : `exit ${outcome.exit_code}`;
};

const draw = (runs: readonly Run[], width: number): string => {
  const rows = runs.map((run) => [
    run.target.name,
    resultOf(run),
    run.state === 'waits' ? '' : seconds(run.elapsedMs),
    run.outcome?.error ?? run.lastLine,
  ]);
  return table(['SANDBOX', 'RESULT', 'TIME', 'LAST LINE'], rows, '')
    .split('\n')
    .map((line) => line.slice(0, width))
    .join('\n');
};

/**
 * Runs a command in many sandboxes at once, with a table that lives on a terminal. Says which failed, and how; the exit code of the
 * whole is 0 only when every one was.
 */
export const runInAll = async (
  cli: Cli,
  targets: readonly Target[],
  command: string | string[],
  options: Options,
): Promise<RunOutcome[]> => {
  const runs = targets.map((target) => new Run(target));
  const live = new LiveText(cli.io.stderr, (columns) => draw(runs, columns), !cli.out.isJson);
  const waiting = [...runs];
  const worker = async (): Promise<void> => {
    for (let run = waiting.shift(); run !== undefined; run = waiting.shift()) {
      await run.go(command, options, cli.signal);
      if (!live.isLive && !cli.out.isJson) cli.out.note(`${run.target.name}: ${resultOf(run)}`);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(options.parallel, runs.length) }, worker));
  } finally {
    live.end();
  }
  if (runs.some(({ outcome }) => outcome?.exit_code !== 0)) cli.exitCode = 1;
  return runs.map(({ outcome, target }) => {
    if (outcome === undefined) throw new CoppiceError('cancelled', `${target.name} was not reached`);
    return outcome;
  });
};

/** The table at the end, and below it the last lines of what failed. */
export const outcomeText = (cli: Cli, outcomes: readonly RunOutcome[]): string => {
  const rows = outcomes.map(({ sandbox, exit_code, duration_ms, output, error }) => [
    sandbox,
    exit_code === 0
      ? { text: 'ok', style: 'green' as const }
      : { text: exit_code === null ? 'failed' : `exit ${exit_code}`, style: 'red' as const },
    seconds(duration_ms),
    error ?? output.trimEnd().split('\n').at(-1) ?? '',
  ]);
  const failed = outcomes.filter(({ exit_code }) => exit_code !== 0);
  const details = failed.map(({ sandbox, output, error }) => {
    const lines = printable(output).trimEnd().split('\n').slice(-shownLines);
    return `\n${cli.out.paint('bold', `== ${sandbox}`)}\n${[...lines, ...(error === null ? [] : [printable(error)])].join('\n')}`;
  });
  const sum = `${outcomes.length - failed.length} of ${outcomes.length} ok`;
  return [
    cli.out.table(['SANDBOX', 'RESULT', 'TIME', 'LAST LINE'], rows, 'No sandboxes.'),
    ...details,
    `\n${sum}`,
  ].join('\n');
};
