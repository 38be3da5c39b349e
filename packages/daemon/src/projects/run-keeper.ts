import type { RunRecord } from '@coppice/projects';
import { CoppiceError } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import type { AgentWork } from './agent-work.ts';
import type { MayDie } from './may-die.ts';
import type { Metered, RunBook } from './run-book.ts';
import { emptyReport, judgeOf, type WorkOrder } from './work-order.ts';

export interface RunKeeperParts {
  readonly work: AgentWork;
  readonly book: RunBook;
  readonly log: Log;
  readonly now: () => number;
  readonly mayDie: MayDie;
  /** Of a run: what the gateway's ledger says. */
  readonly metered: (runId: string) => Promise<Metered>;
  readonly mostAtOnce: number;
}

/** The run itself holds its time limit; this is for one whose sandbox does not answer any more. */
const graceMs = 30_000;

/**
 * Starts runs that are written down, and books what came of them. All that it knows is in the book, and each step is safe to
 * repeat, so the next daemon goes on where this one died.
 */
export class RunKeeper {
  readonly #parts: RunKeeperParts;
  readonly #busy = new Map<string, Promise<void>>();
  #closed = false;

  constructor(parts: RunKeeperParts) {
    this.#parts = parts;
  }

  /** Looks at every run once; does not wait for those that take their time. */
  tend(): void {
    if (this.#closed) return;
    const { book, mostAtOnce } = this.#parts;
    let room = mostAtOnce - this.#busy.size;
    for (const run of [...book.open(), ...book.unswept()]) {
      if (this.#busy.has(run.id)) continue;
      if (room <= 0) return;
      room -= 1;
      const step = this.#step(run)
        .catch((error: unknown) =>
          this.#parts.log.warn({ err: error, run: run.id }, 'a run could not be tended'),
        )
        .finally(() => this.#busy.delete(run.id));
      this.#busy.set(run.id, step);
    }
  }

  /** Once nothing is done with it any more. */
  async settled(runId: string): Promise<void> {
    await this.#busy.get(runId);
  }

  /** What a run of this book needs in its sandbox before its agent starts; false where the run is not in this book. */
  async prepare(runId: string, sandboxId: string): Promise<boolean> {
    const { book, work } = this.#parts;
    const run = book.get(runId);
    if (run === undefined) return false;
    const order = book.orderOf(run);
    if ('exit' in order) throw new CoppiceError('wrong_state', order.why);
    await work.prepare(order, sandboxId);
    return true;
  }

  /** Begins nothing any more. */
  rest(): void {
    this.#closed = true;
  }

  async close(): Promise<void> {
    this.rest();
    await Promise.all(this.#busy.values());
  }

  async #step(seen: RunRecord): Promise<void> {
    const { book } = this.#parts;
    const run = book.get(seen.id);
    if (run === undefined) return;
    if (run.state === 'ended') return this.#sweep(run);
    const order = book.orderOf(run);
    if ('exit' in order) return this.#end(run, order.exit, order.why);
    try {
      if (run.state === 'starting') await this.#start(run, order);
      else await this.#look(run, order);
    } catch (error) {
      await this.#broke(run, error);
    }
  }

  async #start(run: RunRecord, order: WorkOrder): Promise<void> {
    const { work, book, now, mayDie } = this.#parts;
    mayDie('agent-run.recorded');
    await work.start(order);
    mayDie('agent-run.started');
    book.update(run.id, { state: 'running', deadlineMs: now() + order.timeS * 1000 + graceMs });
  }

  async #look(run: RunRecord, order: WorkOrder): Promise<void> {
    const { work, book, now, mayDie } = this.#parts;
    const sandboxId = work.sandboxOf(run.id);
    if (sandboxId !== null && sandboxId !== run.sandboxId) book.update(run.id, { sandboxId });
    const outcome = await work.look(run.id, order.type.needsModel);
    if (order.type.needsModel) await this.#meter(run);
    if (outcome === undefined) {
      if (now() > run.deadlineMs && !work.isPaused(run.id))
        await this.#end(run, 'limit:time', 'it took longer than its time limit');
      return;
    }
    const at = { ...run, sandboxId };
    // What a judge took is paid, whether or not it came to a verdict.
    const judged = await book.evaluate(at, order, outcome).finally(async () => {
      book.meter(at, await this.#parts.metered(judgeOf(run.id)), 'judge');
    });
    const endSnapshot = sandboxId !== null && book.keeps(at, judged) ? await work.keep(sandboxId) : null;
    mayDie('agent-run.kept');
    // It may have been cancelled meanwhile.
    if (book.get(run.id)?.state !== 'running') return;
    book.settle(at, { ...judged, endSnapshot });
    mayDie('agent-run.ended');
    await this.#sweep(book.get(run.id) ?? at);
  }

  async #end(run: RunRecord, exit: 'cancelled' | 'limit:cost' | 'limit:time', why: string): Promise<void> {
    const { book } = this.#parts;
    await this.#meter(run);
    book.settle(run, { exit, summary: why, output: '', report: emptyReport, endSnapshot: null, score: null });
    await this.#sweep(book.get(run.id) ?? run);
  }

  async #sweep(run: RunRecord): Promise<void> {
    const { work, book } = this.#parts;
    await work.end(run.id, (run.summary || 'it is over').slice(0, 1000));
    // A call that was under way when it ended has its price only now.
    await this.#meter(run);
    book.update(run.id, { sandboxId: null });
  }

  async #meter(run: RunRecord): Promise<void> {
    this.#parts.book.meter(run, await this.#parts.metered(run.id), 'gateway');
  }

  /** The machine did, not the agent: its sandbox is gone or could not be made. The book decides whether it is run again. */
  async #broke(run: RunRecord, error: unknown): Promise<void> {
    const { book, log } = this.#parts;
    if (this.#closed) return;
    const why = error instanceof CoppiceError ? error.message : String((error as Error)?.message ?? error);
    log.warn({ err: error, run: run.id, attempt: run.attempt }, 'a run broke');
    await this.#meter(run);
    book.settle(run, {
      exit: 'infra',
      summary: why,
      output: '',
      report: emptyReport,
      endSnapshot: null,
      score: null,
    });
  }
}
