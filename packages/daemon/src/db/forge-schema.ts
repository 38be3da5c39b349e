/** Repositories, issues, pull requests, and what was said about them. */
export const forgeSchema = `
  CREATE TABLE repositories (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    default_branch TEXT NOT NULL,
    url TEXT,
    remote TEXT,
    created_at_ms INTEGER NOT NULL,
    last_number INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE forge_issues (
    repository_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    type TEXT NOT NULL,
    critical INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (repository_id, number)
  ) STRICT;
  CREATE TABLE forge_comments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repository_id TEXT NOT NULL,
    issue INTEGER NOT NULL,
    body TEXT NOT NULL
  ) STRICT;
  CREATE INDEX forge_comments_by_issue ON forge_comments (repository_id, issue);
  CREATE TABLE forge_pulls (
    repository_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    head TEXT NOT NULL,
    base TEXT NOT NULL,
    draft INTEGER NOT NULL,
    head_sha TEXT NOT NULL,
    merge_sha TEXT,
    planned_sha TEXT,
    PRIMARY KEY (repository_id, number)
  ) STRICT;
  CREATE UNIQUE INDEX forge_pulls_open ON forge_pulls (repository_id, head, base) WHERE state = 'open';
  CREATE TABLE forge_checks (
    repository_id TEXT NOT NULL,
    sha TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    description TEXT NOT NULL,
    url TEXT,
    PRIMARY KEY (repository_id, sha, name)
  ) STRICT;
  CREATE TABLE forge_reviews (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    repository_id TEXT NOT NULL,
    pull INTEGER NOT NULL,
    author TEXT NOT NULL,
    state TEXT NOT NULL,
    body TEXT NOT NULL,
    sha TEXT NOT NULL
  ) STRICT;
  CREATE INDEX forge_reviews_by_pull ON forge_reviews (repository_id, pull);
`;

/** Branches of tickets: how far each has come. */
export const branchSchemaSql = `
  CREATE TABLE branch_works (
    repository_id TEXT NOT NULL,
    branch TEXT NOT NULL,
    ticket TEXT NOT NULL,
    title TEXT NOT NULL,
    base TEXT NOT NULL,
    base_sha TEXT NOT NULL,
    state TEXT NOT NULL,
    spec TEXT NOT NULL,
    sandbox_id TEXT,
    run_id TEXT,
    pull INTEGER,
    head_sha TEXT,
    merge_sha TEXT,
    error TEXT,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (repository_id, branch)
  ) STRICT;
  CREATE INDEX branch_works_by_ticket ON branch_works (repository_id, ticket);
`;
