/** Races of runs. */
export const raceSchemaSql = `
  CREATE TABLE races (
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
  ) STRICT, WITHOUT ROWID;
  `;
