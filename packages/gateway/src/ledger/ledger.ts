import type { GatewayEventOf } from '@coppice/protocol';
import type { Caller } from '../models/caller.ts';
import type { DialectName } from '../models/dialect.ts';
import { noUsage, type Usage } from '../models/usage.ts';
import type { LedgerDatabase } from './open-ledger-file.ts';
import { type Settlement, settledEvent } from './settlement.ts';

/** What is known of a call when its request is about to leave. */
export interface Beginning {
  readonly call: string;
  readonly attempt: number;
  readonly caller: Caller;
  readonly dialect: DialectName;
  readonly modelAsked: string;
  /** The name that the upstream is asked for. */
  readonly model: string;
  readonly upstream: string;
  readonly requestBytes: number;
  readonly inputEstimate: number;
  readonly outputEstimate: number;
  /** The price of both estimates; null where there is no price. */
  readonly costEstimate: number | null;
  readonly heldTokens: number;
  readonly heldMicros: number;
  readonly priceVersion: string;
}

export interface RecentCall {
  readonly requestBytes: number;
  readonly usage: Usage;
}

interface OpenRow {
  readonly id: number;
  readonly call: string;
  readonly attempt: number;
  readonly at_ms: number;
  readonly sandbox: string;
  readonly run: string | null;
  readonly agent: string | null;
  readonly project: string | null;
  readonly model: string;
  readonly upstream: string;
  readonly input_estimate: number;
  readonly output_estimate: number;
  readonly cost_estimate: number | null;
  readonly price_version: string;
}

/**
 * The calls to models, append-only. A call is begun before its first byte goes to an upstream and settled once after its
 * last one; what is begun and not settled holds budget.
 */
export class Ledger {
  readonly #database: LedgerDatabase;
  readonly #now: () => number;
  readonly #begin;
  readonly #settle;
  readonly #recent;

  constructor(database: LedgerDatabase, now: () => number = Date.now) {
    this.#database = database;
    this.#now = now;
    this.#begin = database.prepare(`
      INSERT INTO begun (call, attempt, at_ms, sandbox, run, agent, project, dialect, model_asked, model, upstream,
        request_bytes, input_estimate, output_estimate, cost_estimate, held_tokens, held_micros, price_version)
      VALUES (:call, :attempt, :atMs, :sandbox, :run, :agent, :project, :dialect, :modelAsked, :model, :upstream,
        :requestBytes, :inputEstimate, :outputEstimate, :costEstimate, :heldTokens, :heldMicros, :priceVersion)`);
    this.#settle = database.prepare(`
      INSERT INTO settled (id, at_ms, model_served, input, cache_read, cache_write_5m, cache_write_1h, output, reasoning,
        price_version, cost_micros, estimated, first_byte_ms, duration_ms, status, outcome)
      VALUES (:id, :atMs, :modelServed, :input, :cacheRead, :cacheWrite5m, :cacheWrite1h, :output, :reasoning,
        :priceVersion, :costMicros, :estimated, :firstByteMs, :durationMs, :status, :outcome)`);
    this.#recent = database.prepare(`
      SELECT b.request_bytes AS requestBytes, s.input, s.cache_read AS cacheRead, s.cache_write_5m AS cacheWrite5m,
        s.cache_write_1h AS cacheWrite1h, s.output, s.reasoning
      FROM begun b JOIN settled s USING (id)
      WHERE b.sandbox = :sandbox AND b.run IS :run AND s.outcome = 'complete' AND s.estimated = 0
      ORDER BY b.at_ms DESC LIMIT :limit`);
  }

  /** Returns the number that settles it. */
  begin(beginning: Beginning): number {
    const { caller, ...rest } = beginning;
    const row = this.#begin.run({
      ...rest,
      atMs: this.#now(),
      sandbox: caller.sandbox,
      run: caller.run ?? null,
      agent: caller.agent ?? null,
      project: caller.project ?? null,
    });
    return Number(row.lastInsertRowid);
  }

  /** All that is written meanwhile is written together, or nothing of it. */
  together<T>(work: () => T): T {
    return this.#database.transaction(work)();
  }

  settle(id: number, settlement: Settlement): void {
    const { usage, estimated, ...rest } = settlement;
    this.#settle.run({ ...rest, ...usage, id, estimated: estimated ? 1 : 0, atMs: this.#now() });
  }

  /**
   * Settles what an earlier gateway left begun when it died, by its estimates: an upstream may have billed it. Call it
   * once at the start, before anything begins. Returns how many there were.
   */
  recover(tell: (event: GatewayEventOf<'model.settled'>) => void = () => {}): number {
    const open = this.#database
      .prepare(
        `SELECT b.id, b.call, b.attempt, b.at_ms, b.sandbox, b.run, b.agent, b.project, b.model, b.upstream, b.input_estimate, b.output_estimate, b.cost_estimate, b.price_version
         FROM begun b LEFT JOIN settled s USING (id) WHERE s.id IS NULL`,
      )
      .all() as OpenRow[];
    this.#database.transaction(() => {
      for (const row of open) {
        const settlement: Settlement = {
          modelServed: row.model,
          usage: { ...noUsage, input: row.input_estimate, output: row.output_estimate },
          priceVersion: row.price_version,
          costMicros: row.cost_estimate,
          estimated: true,
          firstByteMs: null,
          durationMs: Math.max(0, this.#now() - row.at_ms),
          status: null,
          outcome: 'lost',
        };
        this.settle(row.id, settlement);
        const { call, attempt, sandbox, run, agent, project, model, upstream } = row;
        tell(settledEvent({ call, attempt, sandbox, run, agent, project, model, upstream }, settlement));
      }
    })();
    return open.length;
  }

  /** The newest whole calls of a run (or of a sandbox outside of runs), newest first. */
  recent(caller: Caller, limit: number): readonly RecentCall[] {
    const rows = this.#recent.all({ sandbox: caller.sandbox, run: caller.run ?? null, limit }) as (Usage & {
      requestBytes: number;
    })[];
    return rows.map(({ requestBytes, ...usage }) => ({ requestBytes, usage }));
  }
}
