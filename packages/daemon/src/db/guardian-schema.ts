/** What was done to runs, how far each was looked at, how often restarted, and which are in quarantine. */
export const guardianSchemaSql = `
  CREATE TABLE interventions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    rule TEXT NOT NULL,
    detail TEXT NOT NULL,
    authority TEXT NOT NULL,
    text TEXT NOT NULL,
    target INTEGER,
    state TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT,
    message_id TEXT,
    error TEXT,
    at_ms INTEGER NOT NULL,
    reverted_by TEXT
  ) STRICT;
  CREATE INDEX interventions_by_run ON interventions (run_id);
  CREATE TABLE guardian_positions (
    run_id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE run_restarts (
    run_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    reason TEXT NOT NULL
  ) STRICT;
  CREATE INDEX run_restarts_by_run ON run_restarts (run_id, at_ms);
  CREATE TABLE quarantines (
    run_id TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    network TEXT NOT NULL,
    evidence TEXT
  ) STRICT;
`;
