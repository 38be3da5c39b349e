import type { Config } from '../agent-types/agent-type.ts';
import { StoreFile } from './open.ts';
import type { RunRecord } from './records.ts';
import { Table } from './table.ts';

interface PromotionRecord {
  readonly projectId: string;
  readonly digest: string;
  readonly atMs: number;
  readonly confirmedBy: string;
}

export interface ProductionAgentRecord {
  readonly id: string;
  readonly lane: string;
  readonly name: string;
  readonly type: string;
  readonly typeVersion: number;
  readonly typeFile: unknown;
  readonly stage: 'shadow' | 'canary' | 'live' | 'rolled-back';
  readonly status: 'active' | 'paused' | 'killed';
  readonly config: Config;
  readonly tokenBudget: number;
  readonly scheduleS: number | null;
  readonly nextRunMs: number | null;
  readonly projectId: string;
  readonly fromAgent: string;
  readonly snapshot: string | null;
  readonly notes: readonly string[];
  readonly baseline: number;
  readonly promotedMs: number;
}

export interface LaneRecord {
  readonly name: string;
  /** Who does the work, and who did before. */
  readonly live: string | null;
  readonly previous: string | null;
  readonly generation: number;
  /** How many runs the lane had: which of them a canary gets follows from it. */
  readonly turns: number;
}

export interface ProductionRunRecord extends RunRecord {
  /** Whose results count, and whose are only watched. */
  readonly stage: 'shadow' | 'canary' | 'live';
}

interface ProductionLedgerRecord {
  readonly id: number;
  readonly atMs: number;
  readonly agentId: string;
  readonly runId: string | null;
  readonly kind: 'cost' | 'revenue' | 'shadow-revenue';
  readonly micros: number;
  readonly tokens: number;
  readonly source: string;
  readonly key: string;
}

export interface IncidentRecord {
  readonly id: number;
  readonly agentId: string;
  readonly atMs: number;
  readonly by: string;
  readonly reason: string;
  readonly snapshot: string | null;
  readonly replacedBy: string | null;
}

const migrations = [
  `
  CREATE TABLE promotions (
    project_id TEXT PRIMARY KEY, digest TEXT NOT NULL, at_ms INTEGER NOT NULL, confirmed_by TEXT NOT NULL
  ) STRICT;
  CREATE TABLE lanes (
    name TEXT PRIMARY KEY, live TEXT, previous TEXT, generation INTEGER NOT NULL DEFAULT 0, turns INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE TABLE agents (
    id TEXT PRIMARY KEY, lane TEXT NOT NULL REFERENCES lanes, name TEXT NOT NULL, type TEXT NOT NULL,
    type_version INTEGER NOT NULL, type_file TEXT NOT NULL, stage TEXT NOT NULL, status TEXT NOT NULL, config TEXT NOT NULL,
    token_budget INTEGER NOT NULL, schedule_s INTEGER, next_run_ms INTEGER, project_id TEXT NOT NULL REFERENCES promotions,
    from_agent TEXT NOT NULL UNIQUE, snapshot TEXT, notes TEXT NOT NULL, baseline REAL NOT NULL, promoted_ms INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE runs (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, agent_id TEXT NOT NULL REFERENCES agents, experiment_id INTEGER,
    trial INTEGER, state TEXT NOT NULL, exit TEXT, summary TEXT NOT NULL DEFAULT '', sandbox_id TEXT, job TEXT,
    from_snapshot TEXT, end_snapshot TEXT, started_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL, ended_ms INTEGER,
    attempt INTEGER NOT NULL DEFAULT 1, stage TEXT NOT NULL
  ) STRICT;
  CREATE INDEX runs_of_agent ON runs (agent_id, started_ms);
  CREATE TABLE ledger (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, agent_id TEXT NOT NULL, run_id TEXT, kind TEXT NOT NULL,
    micros INTEGER NOT NULL, tokens INTEGER NOT NULL DEFAULT 0, source TEXT NOT NULL, key TEXT NOT NULL UNIQUE
  ) STRICT;
  CREATE TRIGGER ledger_is_not_changed BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
  CREATE TRIGGER ledger_is_not_cut BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
  CREATE TABLE incidents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent_id TEXT NOT NULL UNIQUE, at_ms INTEGER NOT NULL, by TEXT NOT NULL,
    reason TEXT NOT NULL, snapshot TEXT, replaced_by TEXT
  ) STRICT;
  `,
  // What a run does in its sandbox is written down with the run itself.
  'ALTER TABLE runs DROP COLUMN job',
];

/** The database of production. What is in it was promoted. */
export class ProductionStore extends StoreFile {
  readonly promotions: Table<PromotionRecord>;
  readonly lanes: Table<LaneRecord>;
  readonly agents: Table<ProductionAgentRecord>;
  readonly runs: Table<ProductionRunRecord>;
  readonly ledger: Table<ProductionLedgerRecord>;
  readonly incidents: Table<IncidentRecord>;

  constructor(file: string) {
    super(file, migrations);
    const { database } = this;
    this.promotions = new Table(database, 'promotions');
    this.lanes = new Table(database, 'lanes');
    this.agents = new Table(database, 'agents', ['config', 'notes', 'typeFile']);
    this.runs = new Table(database, 'runs');
    this.ledger = new Table(database, 'ledger');
    this.incidents = new Table(database, 'incidents');
  }

  sums(agentId: string): { readonly costMicros: number; readonly revenueMicros: number } {
    return this.database
      .prepare<[string], { costMicros: number; revenueMicros: number }>(
        `SELECT coalesce(sum(CASE kind WHEN 'cost' THEN micros END), 0) AS costMicros,
                coalesce(sum(CASE kind WHEN 'revenue' THEN micros END), 0) AS revenueMicros
         FROM ledger WHERE agent_id = ?`,
      )
      .get(agentId)!;
  }

  /** Of an agent: how many of its runs ended, and failed, in one stage or in all. */
  runCounts(agentId: string, stage?: string): { readonly runs: number; readonly failed: number } {
    return this.database
      .prepare<[string, string | null, string | null], { runs: number; failed: number }>(
        `SELECT count(*) AS runs, coalesce(sum(exit <> 'ok'), 0) AS failed FROM runs
         WHERE agent_id = ? AND (? IS NULL OR stage = ?) AND state = 'ended' AND exit NOT IN ('infra', 'cancelled')`,
      )
      .get(agentId, stage ?? null, stage ?? null)!;
  }
}
