/** Intents by subject and kind; runs, and what belongs to them. */
export const runSchema = `
  ALTER TABLE intents RENAME TO intents_of_sandboxes;
  CREATE TABLE intents (
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (subject, kind)
  ) STRICT;
  INSERT INTO intents (subject, kind, data) SELECT sandbox_id, kind, data FROM intents_of_sandboxes;
  DROP TABLE intents_of_sandboxes;

  CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    outcome TEXT,
    reason TEXT NOT NULL,
    paused INTEGER NOT NULL,
    spec TEXT NOT NULL,
    adapter TEXT NOT NULL,
    sandbox_id TEXT,
    owns_sandbox INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    working INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    parent_run_id TEXT,
    parent_step INTEGER,
    job_id INTEGER,
    cursor INTEGER NOT NULL,
    adapter_state TEXT NOT NULL,
    result TEXT,
    created_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER,
    ended_at_ms INTEGER
  ) STRICT;
  CREATE TABLE run_transitions (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    reason TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE run_events (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    type TEXT NOT NULL,
    source TEXT NOT NULL,
    turn INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE run_bodies (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (run_id, id)
  ) STRICT;
  CREATE TABLE run_messages (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    urgency TEXT NOT NULL,
    priority INTEGER NOT NULL,
    text TEXT NOT NULL,
    sender TEXT NOT NULL,
    key TEXT,
    state TEXT NOT NULL,
    via TEXT,
    note TEXT,
    accepted_at_ms INTEGER NOT NULL,
    sent_at_ms INTEGER,
    delivered_at_ms INTEGER,
    expires_at_ms INTEGER,
    UNIQUE (run_id, number),
    UNIQUE (run_id, key)
  ) STRICT;
  CREATE TABLE run_steps (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    seq INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    snapshot_id TEXT,
    has_memory INTEGER NOT NULL,
    mark TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
  ) STRICT, WITHOUT ROWID;
  /* What is to go into the standard input of a run's agent, by its place in that stream. */
  CREATE TABLE run_input (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (run_id, start)
  ) STRICT;
  `;
