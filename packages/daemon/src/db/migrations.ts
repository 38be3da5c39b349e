import { branchSchemaSql, forgeSchema } from './forge-schema.ts';
import { guardianSchemaSql } from './guardian-schema.ts';
import { raceSchemaSql } from './race-schema.ts';
import { runSchema } from './run-schema.ts';
import { runWebhookSchemaSql } from './run-webhook-schema.ts';

/** Each entry brings the schema one version further; entries that were released are never edited. */
export const migrations: readonly string[] = [
  `
  CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    failure TEXT,
    image_id TEXT NOT NULL,
    image_name TEXT NOT NULL,
    driver TEXT NOT NULL,
    cpus REAL NOT NULL,
    memory_mb INTEGER NOT NULL,
    disk_mb INTEGER NOT NULL,
    pids INTEGER NOT NULL,
    env TEXT NOT NULL,
    labels TEXT NOT NULL,
    network TEXT NOT NULL,
    address TEXT,
    hostname TEXT NOT NULL,
    idle_timeout_s INTEGER,
    idle_action TEXT NOT NULL,
    max_lifetime_s INTEGER,
    workspace TEXT,
    parent_snapshot_id TEXT,
    parent_sandbox_id TEXT,
    base_snapshot_id TEXT,
    pause_keep TEXT,
    created_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER,
    active_at_ms INTEGER NOT NULL,
    lifetime_warned INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX sandboxes_by_parent ON sandboxes (parent_snapshot_id);

  CREATE TABLE snapshots (
    id TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    sandbox_name TEXT NOT NULL,
    name TEXT NOT NULL,
    note TEXT NOT NULL,
    tags TEXT NOT NULL,
    parent_id TEXT,
    image_id TEXT NOT NULL,
    image_name TEXT NOT NULL,
    driver TEXT NOT NULL,
    engine TEXT NOT NULL,
    memory_bytes INTEGER,
    memory_compatibility TEXT,
    pause_ms REAL,
    referenced_bytes INTEGER,
    used_bytes INTEGER,
    shape TEXT NOT NULL,
    automatic INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (sandbox_id, name)
  ) STRICT;
  CREATE INDEX snapshots_by_parent ON snapshots (parent_id);

  CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    secret_sha256 TEXT NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    last_used_at_ms INTEGER
  ) STRICT;
  CREATE INDEX tokens_by_scope ON tokens (scope);

  CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    type TEXT NOT NULL,
    sandbox_id TEXT,
    data TEXT NOT NULL
  ) STRICT;
  CREATE INDEX events_by_sandbox ON events (sandbox_id, seq);

  CREATE TABLE intents (
    sandbox_id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    data TEXT NOT NULL
  ) STRICT;

  CREATE TABLE forwards (
    sandbox_id TEXT NOT NULL,
    guest_port INTEGER NOT NULL,
    host_port INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (sandbox_id, guest_port)
  ) STRICT;
  `,
  `
  ALTER TABLE snapshots ADD COLUMN memory_used_bytes INTEGER;
  `,
  `
  CREATE TABLE merges (
    holder TEXT NOT NULL,
    merged_id TEXT NOT NULL,
    PRIMARY KEY (holder, merged_id)
  ) STRICT;
  CREATE INDEX merges_by_merged ON merges (merged_id);
  `,
  `
  UPDATE sandboxes SET network = json_insert(network, '$.allow_host_ports', json('[]'));
  UPDATE snapshots SET shape = json_insert(shape, '$.network.allow_host_ports', json('[]'));
  `,
  `
  ALTER TABLE sandboxes ADD COLUMN workspace_identity TEXT;
  `,
  `
  CREATE TABLE callers (
    sandbox_id TEXT PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    body TEXT NOT NULL
  ) STRICT;
  CREATE TABLE gateway_position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL
  ) STRICT;
  `,
  // Names are unique within a project, which SQLite can only be told by making the table anew.
  `
  CREATE TABLE sandboxes_of_projects (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    failure TEXT,
    image_id TEXT NOT NULL,
    image_name TEXT NOT NULL,
    driver TEXT NOT NULL,
    cpus REAL NOT NULL,
    memory_mb INTEGER NOT NULL,
    disk_mb INTEGER NOT NULL,
    pids INTEGER NOT NULL,
    env TEXT NOT NULL,
    labels TEXT NOT NULL,
    network TEXT NOT NULL,
    address TEXT,
    hostname TEXT NOT NULL,
    idle_timeout_s INTEGER,
    idle_action TEXT NOT NULL,
    max_lifetime_s INTEGER,
    workspace TEXT,
    parent_snapshot_id TEXT,
    parent_sandbox_id TEXT,
    base_snapshot_id TEXT,
    pause_keep TEXT,
    created_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER,
    active_at_ms INTEGER NOT NULL,
    lifetime_warned INTEGER NOT NULL,
    workspace_identity TEXT,
    project TEXT NOT NULL DEFAULT 'default',
    owner TEXT,
    run_id TEXT,
    UNIQUE (project, name)
  ) STRICT;
  -- What refers to a table goes with it.
  CREATE TABLE callers_kept AS SELECT * FROM callers;
  INSERT INTO sandboxes_of_projects SELECT *, 'default', NULL, NULL FROM sandboxes;
  DROP TABLE sandboxes;
  ALTER TABLE sandboxes_of_projects RENAME TO sandboxes;
  INSERT OR IGNORE INTO callers SELECT * FROM callers_kept;
  DROP TABLE callers_kept;
  CREATE INDEX sandboxes_by_parent ON sandboxes (parent_snapshot_id);
  CREATE INDEX sandboxes_by_run ON sandboxes (run_id);
  CREATE INDEX sandboxes_by_owner ON sandboxes (owner);

  ALTER TABLE snapshots ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
  ALTER TABLE snapshots ADD COLUMN owner TEXT;
  ALTER TABLE snapshots ADD COLUMN run_id TEXT;
  CREATE INDEX snapshots_by_owner ON snapshots (owner);

  ALTER TABLE tokens ADD COLUMN role TEXT NOT NULL DEFAULT 'full';
  ALTER TABLE tokens ADD COLUMN person TEXT;
  ALTER TABLE tokens ADD COLUMN quota TEXT;
  `,
  runSchema,
  forgeSchema,
  `
  CREATE TABLE budget_duties (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    period TEXT NOT NULL,
    tries INTEGER NOT NULL
  ) STRICT;
  `,
  `
  CREATE TABLE page_sessions (
    key_sha256 TEXT PRIMARY KEY,
    cookie_sha256 TEXT NOT NULL,
    token_id TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL
  ) STRICT;
  `,
  branchSchemaSql,
  // What the files of a checkpoint's memory are long in all: a loss of power may take the end of them.
  `
  ALTER TABLE snapshots ADD COLUMN memory_length_bytes INTEGER;
  `,
  guardianSchemaSql,
  `
  UPDATE sandboxes SET network = json_insert(network, '$.ask', json('false'));
  UPDATE snapshots SET shape = json_insert(shape, '$.network.ask', json('false'));
  `,
  // How much a run has on record.
  `
  ALTER TABLE runs ADD COLUMN record_bytes INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX run_events_by_type ON run_events (run_id, type);
  `,
  // Several directories of the host, of which /workspace is one.
  `
  ALTER TABLE sandboxes ADD COLUMN mounts TEXT NOT NULL DEFAULT '[]';
  UPDATE sandboxes SET mounts = json_array(json_object(
    'hostPath', workspace, 'guestPath', '/workspace', 'readOnly', json('false'), 'identity', workspace_identity))
    WHERE workspace IS NOT NULL;
  ALTER TABLE sandboxes DROP COLUMN workspace;
  ALTER TABLE sandboxes DROP COLUMN workspace_identity;
  `,
  // Which states began with a restore: of a sandbox as it is now, or of a snapshot that was taken since.
  `
  CREATE TABLE restores (
    holder TEXT PRIMARY KEY,
    snapshot_id TEXT NOT NULL,
    left_id TEXT,
    at_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  // Whose each event is, so that a token sees those of what it reaches.
  `
  ALTER TABLE events ADD COLUMN project TEXT;
  ALTER TABLE events ADD COLUMN run_id TEXT;
  UPDATE events SET (project, run_id) = (SELECT project, run_id FROM sandboxes WHERE id = events.sandbox_id)
    WHERE sandbox_id IN (SELECT id FROM sandboxes);
  CREATE INDEX events_by_project ON events (project, seq);
  CREATE INDEX events_by_run ON events (run_id, seq) WHERE run_id IS NOT NULL;
  `,
  runWebhookSchemaSql,
  raceSchemaSql,
];
