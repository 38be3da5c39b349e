export { branchNameFor, slugOf, type Ticket } from './branch-name.ts';
export { BuiltinForge, type BuiltinForgeParts } from './builtin/builtin-forge.ts';
export { Git, type GitOptions } from './builtin/git.ts';
export { type GitService, GitTransport, gitServices } from './builtin/git-transport.ts';
export type { ForgeRecords, MergeStep, PullRecord, ReviewRecord } from './builtin/records.ts';
export { BareRepository, branchOf } from './builtin/repository.ts';
export type {
  Branch,
  Forge,
  MergeMethod,
  MergeObstacle,
  MergeRequest,
  NewPull,
  WebhookEvent,
  WebhookRequest,
} from './forge.ts';
export {
  type ForgeAnswer,
  ForgeCalls,
  type ForgeHttp,
  type ForgeRequest,
} from './remote/forge-calls.ts';
export { GiteaForge } from './remote/gitea-forge.ts';
export { GithubForge } from './remote/github-forge.ts';
export { GitlabForge } from './remote/gitlab-forge.ts';
