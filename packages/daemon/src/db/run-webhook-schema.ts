/** Webhooks for events of runs, and how far each has come with each run. */
export const runWebhookSchemaSql = `
  CREATE TABLE run_webhooks (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    types TEXT,
    run_id TEXT REFERENCES runs (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    failure TEXT,
    created_at_ms INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE run_webhook_cursors (
    webhook_id TEXT NOT NULL REFERENCES run_webhooks (id) ON DELETE CASCADE,
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    after_seq INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    next_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook_id, run_id)
  ) STRICT, WITHOUT ROWID;
  `;
