/** Each entry brings the schema one version further; entries that were released are never edited. */
export const migrations: readonly string[] = [
  `
  -- One row per request that goes to an upstream, written before its first byte does.
  CREATE TABLE begun (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    call TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    sandbox TEXT NOT NULL,
    run TEXT,
    agent TEXT,
    project TEXT,
    dialect TEXT NOT NULL,
    model_asked TEXT NOT NULL,
    model TEXT NOT NULL,
    upstream TEXT NOT NULL,
    request_bytes INTEGER NOT NULL,
    input_estimate INTEGER NOT NULL,
    output_estimate INTEGER NOT NULL,
    cost_estimate INTEGER,
    held_tokens INTEGER NOT NULL,
    held_micros INTEGER NOT NULL,
    price_version TEXT NOT NULL,
    UNIQUE (call, attempt)
  ) STRICT;
  CREATE INDEX begun_by_sandbox ON begun (sandbox, at_ms);
  CREATE INDEX begun_by_run ON begun (run, at_ms);
  CREATE INDEX begun_by_agent ON begun (agent, at_ms);
  CREATE INDEX begun_by_project ON begun (project, at_ms);
  CREATE INDEX begun_by_time ON begun (at_ms);

  -- What came of it: at most one row for each, and nothing changes it afterwards.
  CREATE TABLE settled (
    id INTEGER PRIMARY KEY REFERENCES begun (id),
    at_ms INTEGER NOT NULL,
    model_served TEXT NOT NULL,
    input INTEGER NOT NULL CHECK (input >= 0),
    cache_read INTEGER NOT NULL CHECK (cache_read >= 0),
    cache_write_5m INTEGER NOT NULL CHECK (cache_write_5m >= 0),
    cache_write_1h INTEGER NOT NULL CHECK (cache_write_1h >= 0),
    output INTEGER NOT NULL CHECK (output >= 0),
    reasoning INTEGER NOT NULL CHECK (reasoning >= 0),
    price_version TEXT NOT NULL,
    cost_micros INTEGER CHECK (cost_micros >= 0),
    estimated INTEGER NOT NULL,
    first_byte_ms INTEGER,
    duration_ms INTEGER NOT NULL,
    status INTEGER,
    outcome TEXT NOT NULL
  ) STRICT;

  CREATE TRIGGER begun_is_never_changed BEFORE UPDATE ON begun BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
  CREATE TRIGGER begun_is_never_deleted BEFORE DELETE ON begun BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
  CREATE TRIGGER settled_is_never_changed BEFORE UPDATE ON settled BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
  CREATE TRIGGER settled_is_never_deleted BEFORE DELETE ON settled BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

  CREATE TABLE budgets (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    period TEXT NOT NULL,
    tokens INTEGER CHECK (tokens >= 0),
    micros INTEGER CHECK (micros >= 0),
    action TEXT NOT NULL,
    announced TEXT NOT NULL,
    PRIMARY KEY (scope, name, period)
  ) STRICT;
  `,
  `
  -- What the daemon has yet to hear. Positions mean something together with the epoch alone.
  CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
  CREATE TABLE outbox_epoch (id INTEGER PRIMARY KEY CHECK (id = 1), epoch TEXT NOT NULL) STRICT;

  -- Messages that a request of this sandbox has carried to a model.
  CREATE TABLE sightings (
    sandbox TEXT NOT NULL,
    message TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (sandbox, message)
  ) STRICT, WITHOUT ROWID;
  `,
];
