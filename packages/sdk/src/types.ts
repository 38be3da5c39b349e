/** The shapes of all requests and answers, by the names that the API has for them. */
export type * from '@coppice/protocol';
export type { Sandbox as SandboxInfo } from '@coppice/protocol';
export type { Branches } from './branches.ts';
export type { Client } from './client.ts';
export type { EventFilter, Events } from './events.ts';
export type { ExportProgress } from './export-progress.ts';
export type { ExportOptions } from './export-snapshot.ts';
export type { Files } from './files/files.ts';
export type { Repositories } from './forge.ts';
export type { Budgets, Secrets } from './gateway.ts';
export type {
  Git,
  GitCloneOptions,
  GitCommitOptions,
  GitDiffOptions,
  GitPushOptions,
  MergeCommitsOptions,
} from './git.ts';
export type { Guardian } from './guardian.ts';
export type { Images } from './images.ts';
export type { JobActions, Jobs } from './jobs.ts';
export type { Notes } from './notes.ts';
export type {
  CommandLine,
  CreateOptions,
  DiffOptions,
  ExecOptions,
  ForkOptions,
  JobOptions,
  MergeOptions,
  PatchOptions,
  ProcessOptions,
  RestoreOptions,
  SnapshotOptions,
  SwarmOptions,
  TerminalOptions,
} from './options.ts';
export type { Ports } from './ports.ts';
export type { Production, Projects } from './projects.ts';
export type { Runs } from './runs.ts';
export type { Forks, ListedSandbox, Sandbox, SnapshotActions } from './sandbox.ts';
export type { Prepared, PrepareOptions, Sandboxes } from './sandboxes.ts';
export type { Sessions } from './sessions.ts';
export type { Snapshots } from './snapshots.ts';
export type { Strays } from './strays.ts';
export type { Terminals } from './terminals.ts';
export type { Tokens } from './tokens.ts';
