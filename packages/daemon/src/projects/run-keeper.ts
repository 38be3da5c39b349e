import type { RunRecord } from '@coppice/projects';
import { CoppiceError } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import type { AgentWork } from './agent-work.ts';
import type { MayDie } from './may-die.ts';
import type { Metered, RunBook } from './run-book.ts';
import { emptyReport, type WorkOrder } from './work-order.ts';

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

/** What the machine broke is tried so often. */
const mostAttempts = 3;

/**
 * Brings runs from `starting` over `running` to their end. All that it knows is in the book, and each step can be done
 * again, so the next daemon goes on where this one died.
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

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#busy.values());
  }

  async #step(seen: RunRecord): Promise<void> {
    const { book, now } = this.#parts;
    const run = book.get(seen.id);
    if (run === undefined) return this.#parts.work.remove(seen.projectId, seen.id);
    if (run.state === 'ended') return this.#sweep(run);
    const order = book.orderOf(run);
    if ('exit' in order) return this.#end(run, order.exit, order.why);
    try {
      if (run.state === 'starting') await this.#start(run, order);
      else await this.#look(run, order);
      const late = book.get(run.id);
      if (late?.state === 'running' && now() > late.deadlineMs)
        await this.#end(late, 'limit:time', 'it took longer than its time limit');
    } catch (error) {
      await this.#broke(run, error);
    }
  }

  async #start(run: RunRecord, order: WorkOrder): Promise<void> {
    const { work, book, now, mayDie } = this.#parts;
    mayDie('agent-run.recorded');
    const sandboxId = await work.prepare(order);
    mayDie('agent-run.sandbox-made');
    const job = await work.start(sandboxId, order);
    mayDie('agent-run.job-started');
    book.update(run.id, {
      state: 'running',
      sandboxId,
      job,
      // The agent inside ends it first; this is for one that does not answer any more.
      deadlineMs: now() + order.timeS * 1000 + 30_000,
    });
  }

  async #look(run: RunRecord, order: WorkOrder): Promise<void> {
    const { work, book, mayDie } = this.#parts;
    const outcome = await work.look(run.sandboxId!, run.job!, order.type.needsModel);
    if (order.type.needsModel) book.meter(run, await this.#parts.metered(run.id));
    if (outcome === undefined) return;
    const judged = await book.evaluate(run, order, outcome);
    const endSnapshot = book.keeps(run, judged) ? await work.keep(run.sandboxId!) : null;
    mayDie('agent-run.kept');
    // It may have been cancelled meanwhile.
    if (book.get(run.id)?.state !== 'running') return;
    book.settle(run, { ...judged, endSnapshot });
    mayDie('agent-run.ended');
    await this.#sweep(book.get(run.id) ?? run);
  }

  async #end(run: RunRecord, exit: 'cancelled' | 'limit:cost' | 'limit:time', why: string): Promise<void> {
    const { book } = this.#parts;
    book.settle(run, { exit, summary: why, output: '', report: emptyReport, endSnapshot: null, score: null });
    await this.#sweep(book.get(run.id) ?? run);
  }

  async #sweep(run: RunRecord): Promise<void> {
    const { work, book } = this.#parts;
    await work.remove(run.projectId, run.id);
    book.update(run.id, { sandboxId: null });
  }

  /** The machine did, not the agent: its sandbox is gone or does not answer. */
  async #broke(run: RunRecord, error: unknown): Promise<void> {
    const { work, book, log } = this.#parts;
    if (this.#closed) return;
    const why = error instanceof CoppiceError ? error.message : String((error as Error)?.message ?? error);
    // What a caller got wrong stays wrong however often it is tried.
    const isHopeless = error instanceof CoppiceError && hopeless.has(error.code);
    log.warn({ err: error, run: run.id, attempt: run.attempt }, 'a run broke');
    await work.remove(run.projectId, run.id);
    if (!isHopeless && run.attempt < mostAttempts) {
      book.update(run.id, {
        state: 'starting',
        sandboxId: null,
        job: null,
        attempt: run.attempt + 1,
        summary: why,
      });
      return;
    }
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

const hopeless = new Set(['invalid_argument', 'unsupported', 'forbidden']);
