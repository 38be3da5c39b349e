import { StoreFile } from './open.ts';
import type {
  AgentRecord,
  EvaluationRecord,
  ExperimentRecord,
  LedgerRecord,
  MetricRecord,
  NoteRecord,
  NotificationRecord,
  ProjectRecord,
  ProjectSnapshotRecord,
  RunRecord,
  TrialRecord,
  WebhookRecord,
} from './records.ts';
import { Table } from './table.ts';

const migrations = [
  `
  CREATE TABLE projects (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL, status TEXT NOT NULL,
    created_ms INTEGER NOT NULL, promoted_ms INTEGER, cap_micros INTEGER, ends_ms INTEGER, ended_because TEXT,
    active_ms INTEGER NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE TABLE agents (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, name TEXT NOT NULL,
    type TEXT NOT NULL, type_version INTEGER NOT NULL, type_file TEXT NOT NULL, config TEXT NOT NULL, status TEXT NOT NULL,
    token_budget INTEGER NOT NULL, schedule_s INTEGER, next_run_ms INTEGER, deployed_ms INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX agents_of_project ON agents (project_id);
  CREATE TABLE runs (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, agent_id TEXT NOT NULL,
    experiment_id INTEGER, trial INTEGER, state TEXT NOT NULL, exit TEXT, summary TEXT NOT NULL DEFAULT '',
    sandbox_id TEXT, job TEXT, from_snapshot TEXT, end_snapshot TEXT, started_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL, ended_ms INTEGER, attempt INTEGER NOT NULL DEFAULT 1
  ) STRICT;
  CREATE INDEX runs_of_agent ON runs (agent_id, started_ms);
  CREATE INDEX runs_of_project ON runs (project_id, started_ms);
  CREATE INDEX runs_by_state ON runs (state);
  CREATE TABLE ledger (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, project_id TEXT NOT NULL, agent_id TEXT, run_id TEXT,
    kind TEXT NOT NULL, micros INTEGER NOT NULL, tokens INTEGER NOT NULL DEFAULT 0, source TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '', key TEXT NOT NULL UNIQUE
  ) STRICT;
  CREATE INDEX ledger_of_project ON ledger (project_id, id);
  CREATE TRIGGER ledger_is_not_changed BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
  CREATE TRIGGER ledger_is_not_cut BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END;
  CREATE TABLE metrics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
    project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, agent_id TEXT, run_id TEXT, name TEXT NOT NULL,
    value REAL NOT NULL, source TEXT NOT NULL, key TEXT NOT NULL UNIQUE
  ) STRICT;
  CREATE INDEX metrics_of_project ON metrics (project_id, id);
  CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
    project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, agent_id TEXT, text TEXT NOT NULL, source TEXT NOT NULL
  ) STRICT;
  CREATE TABLE experiments (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE,
    name TEXT NOT NULL, hypothesis TEXT NOT NULL, template TEXT NOT NULL, state TEXT NOT NULL, success INTEGER,
    config TEXT NOT NULL, results TEXT NOT NULL, type TEXT, type_file TEXT, variants TEXT NOT NULL, cases TEXT NOT NULL,
    snapshots TEXT NOT NULL, evaluator TEXT NOT NULL, stop TEXT NOT NULL, seed INTEGER NOT NULL,
    parallel INTEGER NOT NULL, merge_into TEXT, base TEXT, owns_base INTEGER NOT NULL DEFAULT 0, winner TEXT,
    failure TEXT, started_ms INTEGER NOT NULL, completed_ms INTEGER
  ) STRICT;
  CREATE TABLE trials (
    experiment_id INTEGER NOT NULL REFERENCES experiments ON DELETE CASCADE, n INTEGER NOT NULL, variant TEXT NOT NULL,
    case_id TEXT NOT NULL, epoch INTEGER NOT NULL, state TEXT NOT NULL, exit TEXT, passed INTEGER, score REAL,
    cost_micros INTEGER NOT NULL DEFAULT 0, duration_ms INTEGER, attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '', run_id TEXT, snapshot TEXT, PRIMARY KEY (experiment_id, n)
  ) STRICT;
  CREATE TABLE evaluations (
    digest TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, at_ms INTEGER NOT NULL,
    body TEXT NOT NULL
  ) STRICT;
  CREATE TABLE project_snapshots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project_id TEXT NOT NULL REFERENCES projects ON DELETE CASCADE,
    name TEXT NOT NULL, at_ms INTEGER NOT NULL, body TEXT NOT NULL, UNIQUE (project_id, name)
  ) STRICT;
  CREATE TABLE notifications (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, url TEXT NOT NULL, event TEXT NOT NULL, project_id TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, next_ms INTEGER NOT NULL, failure TEXT, UNIQUE (message_id, url)
  ) STRICT;
  CREATE INDEX notifications_by_state ON notifications (state, next_ms);
  CREATE TABLE webhooks (url TEXT PRIMARY KEY, secret TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT;
  `,
  // What a run does in its sandbox is written down with the run itself.
  'ALTER TABLE runs DROP COLUMN job',
  'ALTER TABLE projects ADD COLUMN restoring INTEGER',
];

export interface Sums {
  readonly costMicros: number;
  readonly revenueMicros: number;
  readonly tokens: number;
}

/** The database of projects: apart from production's, and from the daemon's own. */
export class ProjectStore extends StoreFile {
  readonly projects: Table<ProjectRecord>;
  readonly agents: Table<AgentRecord>;
  readonly runs: Table<RunRecord>;
  readonly ledger: Table<LedgerRecord>;
  readonly metrics: Table<MetricRecord>;
  readonly notes: Table<NoteRecord>;
  readonly experiments: Table<ExperimentRecord>;
  readonly trials: Table<TrialRecord>;
  readonly evaluations: Table<EvaluationRecord>;
  readonly snapshots: Table<ProjectSnapshotRecord>;
  readonly notifications: Table<NotificationRecord>;
  readonly webhooks: Table<WebhookRecord>;

  constructor(file: string) {
    super(file, migrations);
    const { database } = this;
    this.projects = new Table(database, 'projects');
    this.agents = new Table(database, 'agents', ['config', 'typeFile']);
    this.runs = new Table(database, 'runs');
    this.ledger = new Table(database, 'ledger');
    this.metrics = new Table(database, 'metrics');
    this.notes = new Table(database, 'notes');
    this.experiments = new Table(database, 'experiments', [
      'config',
      'typeFile',
      'results',
      'variants',
      'cases',
      'snapshots',
      'evaluator',
    ]);
    this.trials = new Table(database, 'trials');
    this.evaluations = new Table(database, 'evaluations', ['body']);
    this.snapshots = new Table(database, 'project_snapshots', ['body']);
    this.notifications = new Table(database, 'notifications');
    this.webhooks = new Table(database, 'webhooks');
  }

  /** What a project, or one agent of it, cost and brought in. A refund takes from the revenue; adjustments correct the cost. */
  sums(projectId: string, agentId?: string): Sums {
    const row = this.database
      .prepare<[string, string | null, string | null], { cost: number; revenue: number; tokens: number }>(
        `SELECT coalesce(sum(CASE WHEN kind IN ('cost', 'adjustment') THEN micros END), 0) AS cost,
                coalesce(sum(CASE kind WHEN 'revenue' THEN micros WHEN 'refund' THEN -micros END), 0) AS revenue,
                coalesce(sum(tokens), 0) AS tokens
         FROM ledger WHERE project_id = ? AND (? IS NULL OR agent_id = ?)`,
      )
      .get(projectId, agentId ?? null, agentId ?? null);
    return { costMicros: row?.cost ?? 0, revenueMicros: row?.revenue ?? 0, tokens: row?.tokens ?? 0 };
  }

  /** Of what the gateway measured, what is in the ledger already. */
  metered(runId: string, source: 'gateway' | 'judge'): { readonly micros: number; readonly tokens: number } {
    return this.database
      .prepare<[string, string], { micros: number; tokens: number }>(
        `SELECT coalesce(sum(micros), 0) AS micros, coalesce(sum(tokens), 0) AS tokens
         FROM ledger WHERE run_id = ? AND source = ?`,
      )
      .get(runId, source)!;
  }

  costOfRun(runId: string): number {
    return this.database
      .prepare<[string], { micros: number }>(
        "SELECT coalesce(sum(micros), 0) AS micros FROM ledger WHERE run_id = ? AND kind = 'cost'",
      )
      .get(runId)!.micros;
  }

  /** Runs that ended, without trials. What the machine broke counts neither way. */
  runCounts(projectId: string, agentId?: string): { readonly runs: number; readonly failed: number } {
    return this.database
      .prepare<[string, string | null, string | null], { runs: number; failed: number }>(
        `SELECT count(*) AS runs, coalesce(sum(exit <> 'ok'), 0) AS failed FROM runs
         WHERE project_id = ? AND (? IS NULL OR agent_id = ?) AND trial IS NULL AND state = 'ended'
           AND exit NOT IN ('infra', 'cancelled')`,
      )
      .get(projectId, agentId ?? null, agentId ?? null)!;
  }

  /** The profit of each run that ended, in dollars. */
  profits(projectId: string): number[] {
    return this.database
      .prepare<[string], { usd: number }>(
        `SELECT coalesce((SELECT sum(CASE kind WHEN 'revenue' THEN micros ELSE -micros END) FROM ledger
                          WHERE run_id = runs.id), 0) / 1e6 AS usd
         FROM runs WHERE project_id = ? AND trial IS NULL AND state = 'ended' AND exit NOT IN ('infra', 'cancelled')
         ORDER BY started_ms`,
      )
      .all(projectId)
      .map(({ usd }) => usd);
  }

  due(nowMs: number): AgentRecord[] {
    return this.database
      .prepare<[number], { id: string }>(
        `SELECT agents.id FROM agents JOIN projects ON projects.id = project_id
         WHERE agents.status = 'active' AND projects.status = 'active' AND next_run_ms <= ? ORDER BY next_run_ms`,
      )
      .all(nowMs)
      .flatMap(({ id }) => this.agents.one({ id }) ?? []);
  }

  /** What may be sent to one target now, the oldest first. */
  notificationsDue(url: string, nowMs: number): NotificationRecord[] {
    return this.notifications
      .all({ state: 'waiting', url }, 'ORDER BY next_ms, id LIMIT 100')
      .filter(({ nextMs }) => nextMs <= nowMs);
  }

  /** Every row of it but the ledger's. */
  forget(projectId: string): void {
    this.transaction(() => {
      this.notifications.delete({ projectId });
      this.projects.delete({ id: projectId });
    });
    this.database.pragma('wal_checkpoint(TRUNCATE)');
  }
}
