import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import type { LedgerDatabase } from './open-ledger-file.ts';

const columns = {
  sandbox: 'b.sandbox',
  run: 'b.run',
  agent: 'b.agent',
  project: 'b.project',
  model: 'COALESCE(s.model_served, b.model)',
  upstream: 'b.upstream',
  outcome: "COALESCE(s.outcome, 'running')",
  /** Of UTC. */
  day: "strftime('%Y-%m-%d', b.at_ms / 1000, 'unixepoch')",
} as const;
export type CostKey = keyof typeof columns;
const keys = Object.keys(columns) as [CostKey, ...CostKey[]];

export const costQuerySchema = z.strictObject({
  /** One row for each combination of these; none gives the total alone. */
  by: z.array(z.enum(keys)).max(keys.length).default([]),
  sinceMs: z.int().min(0).optional(),
  /** Calls that began before. */
  untilMs: z.int().min(0).optional(),
  where: z.partialRecord(z.enum(keys), z.string().max(200)).default({}),
  limit: z.int().min(1).max(100_000).default(10_000),
});
export type CostQuery = z.input<typeof costQuerySchema>;

export interface CostSums {
  readonly calls: number;
  /** Begun and not settled yet; they are in no other sum. */
  readonly running: number;
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite5m: number;
  readonly cacheWrite1h: number;
  readonly output: number;
  readonly reasoning: number;
  /** Of calls that have a price. */
  readonly costMicros: number;
  /** Calls without a price, whose tokens are counted alone. */
  readonly unpriced: number;
  /** Calls whose tokens the upstream did not report to the end. */
  readonly estimated: number;
}

export interface CostRow extends CostSums {
  readonly key: Readonly<Partial<Record<CostKey, string | null>>>;
}

export interface CostReport {
  readonly by: readonly CostKey[];
  /** The dearest first. */
  readonly rows: readonly CostRow[];
  readonly total: CostSums;
}

const sums = `
  COUNT(*) AS calls,
  COUNT(*) - COUNT(s.id) AS running,
  TOTAL(s.input) AS input,
  TOTAL(s.cache_read) AS cacheRead,
  TOTAL(s.cache_write_5m) AS cacheWrite5m,
  TOTAL(s.cache_write_1h) AS cacheWrite1h,
  TOTAL(s.output) AS output,
  TOTAL(s.reasoning) AS reasoning,
  TOTAL(s.cost_micros) AS costMicros,
  COUNT(s.id) - COUNT(s.cost_micros) AS unpriced,
  TOTAL(s.estimated) AS estimated`;

/** What calls have cost, by anything. */
export function costs(database: LedgerDatabase, question: CostQuery): CostReport {
  const parsed = costQuerySchema.safeParse(question);
  if (!parsed.success)
    throw new CoppiceError(
      'invalid_argument',
      `costs cannot be asked like that: ${z.prettifyError(parsed.error)}`,
    );
  const { by, where, sinceMs, untilMs, limit } = parsed.data;
  const values: Record<string, string | number> = {};
  const conditions = ['1'];
  if (sinceMs !== undefined) {
    conditions.push('b.at_ms >= :sinceMs');
    values.sinceMs = sinceMs;
  }
  if (untilMs !== undefined) {
    conditions.push('b.at_ms < :untilMs');
    values.untilMs = untilMs;
  }
  for (const [key, value] of Object.entries(where) as [CostKey, string][]) {
    conditions.push(`${columns[key]} = :where_${key}`);
    values[`where_${key}`] = value;
  }
  const from = `FROM begun b LEFT JOIN settled s USING (id) WHERE ${conditions.join(' AND ')}`;
  const total = database.prepare(`SELECT ${sums} ${from}`).get(values) as CostSums;
  if (by.length === 0) return { by, rows: [], total };
  const named = by.map((key) => `${columns[key]} AS key_${key}`).join(', ');
  const rows = database
    .prepare(
      `SELECT ${named}, ${sums} ${from} GROUP BY ${by.map((key) => `key_${key}`).join(', ')}
       ORDER BY costMicros DESC, output DESC, ${by.map((key) => `key_${key}`).join(', ')} LIMIT :limit`,
    )
    .all({ ...values, limit }) as (CostSums & Record<string, string | null>)[];
  return {
    by,
    rows: rows.map((row) => {
      const key: Partial<Record<CostKey, string | null>> = {};
      const rest: Record<string, unknown> = { ...row };
      for (const name of by) {
        key[name] = row[`key_${name}`] ?? null;
        delete rest[`key_${name}`];
      }
      return { key, ...(rest as unknown as CostSums) };
    }),
    total,
  };
}
