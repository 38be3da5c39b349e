import type {
  Answered,
  answerQuestionSchema,
  Belonging,
  Budget,
  BuildEvent,
  buildContextSchema,
  buildImageSchema,
  Caller,
  Costs,
  CreatedSandbox,
  CreateSandbox,
  commitImageSchema,
  connectionsQuery,
  costsQuery,
  createdTokenSchema,
  createSnapshotSchema,
  createTokenSchema,
  Destroyed,
  Diff,
  Doctor,
  destroyQuery,
  diffQuery,
  Event,
  exportSchema,
  Forked,
  fileDiffQuery,
  fileDiffSchema,
  forkSandboxSchema,
  forkSnapshotSchema,
  GitCloned,
  GitCommitted,
  GitDiff,
  GitPushed,
  GitStatus,
  gitCloneSchema,
  gitCommitSchema,
  gitDiffQuery,
  gitPushSchema,
  gitStatusQuery,
  Image,
  Imported,
  importQuery,
  keepStraySchema,
  LineageNode,
  listSandboxesQuery,
  loginSchema,
  Merged,
  MergedCommits,
  makeImageSchema,
  mergeCommitsSchema,
  mergeSchema,
  NetworkConnection,
  networkPatchSchema,
  PageLink,
  Patch,
  PortForward,
  PreparedSandbox,
  PushEvent,
  patchQuery,
  prepareSandboxSchema,
  prunedImagesSchema,
  pruneImagesSchema,
  Question,
  Role,
  registryLoginSchema,
  removeBudgetQuery,
  restoredSchema,
  restoreSchema,
  runSwarmSchema,
  Sandbox,
  SandboxDetail,
  Scope,
  Secret,
  Snapshot,
  Stray,
  Swarm,
  SwarmTask,
  setBudgetSchema,
  setSecretSchema,
  TakenSnapshot,
  Token,
  UsageEntry,
  updateSandboxSchema,
  updateSnapshotSchema,
  Whoami,
} from '@coppice/protocol';
import type { LayerProgress, PushProgress } from '@coppice/runtime';
import type { z } from 'zod';
import type { BranchService } from './branches/branch-service.ts';
import type { ForgeService } from './forge/forge-service.ts';
import type { Guardian } from './guardian/guardian-service.ts';
import type { RunWatch } from './health/run-watch.ts';
import type { Health } from './host/health-service.ts';
import type { ExecService } from './inside/exec-service.ts';
import type { FileService } from './inside/file-service.ts';
import type { JobService } from './inside/job-service.ts';
import type { TerminalService } from './inside/terminal-service.ts';
import type { Vault } from './notes/vault.ts';
import type { InsideService } from './runs/inside-service.ts';
import type { RaceService } from './runs/race-service.ts';
import type { RunService } from './runs/run-service.ts';
import type { RunWebhooks } from './runs/run-webhooks.ts';
import type { Sessions } from './sessions/sessions.ts';

/** Told how far a long operation is; called often, shows nothing by itself. */
export type Progress = (done: { readonly message: string; readonly fraction?: number }) => void;

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** With which kind of token. Where nobody says, no more is allowed than to a sandbox's own. */
  readonly by?: Scope['kind'] | undefined;
  /** Whose quota what is made counts against; null for administrators and the daemon itself. */
  readonly owner?: string | null | undefined;
  /** The session of agents that owns what is made, and whose places it takes. */
  readonly session?: string | undefined;
  /** The run that what is made belongs to. */
  readonly runId?: string | undefined;
  readonly progress?: Progress;
}

export interface PullOptions extends CallOptions {
  readonly onLayer?: (progress: LayerProgress) => void;
}

export interface PushOptions extends CallOptions {
  readonly onLayer?: (progress: PushProgress) => void;
}

export interface BuildOptions extends CallOptions {
  readonly onEvent?: (event: BuildEvent) => void;
}

export interface SwarmOptions extends CallOptions {
  /** Told when a task has ended. */
  readonly onTask?: (task: SwarmTask, done: number, total: number) => void;
}

/** What a registry has now. */
export type PushedImage = Omit<Extract<PushEvent, { type: 'pushed' }>, 'type'>;

export interface Principal {
  readonly tokenId: string;
  readonly scope: Scope;
  readonly role: Role;
  /** Whose quota what it makes counts against: its person, or itself; null for an administrator. */
  readonly owner: string | null;
  /** When the sign-in of a page ends; only of a page. */
  readonly signedInUntilMs?: number;
}

/** What a page gets for the code of its link. */
export interface SignedIn {
  /** The page keeps it in a storage that belongs to this port alone. */
  readonly key: string;
  readonly cookie: string;
  readonly expiresAtMs: number;
}

/** Everything the doors (HTTP, MCP) may call. Every `ref` is an id or a name. */
export interface Services {
  readonly sandboxes: {
    /** What the sandbox behind an id or a name belongs to; undefined where there is none. */
    find(ref: string): Belonging | undefined;
    /** What is written down of it, without measuring anything; throws not_found. */
    peek(ref: string): Sandbox;
    /** Values included, so for no answer: to know what must not be in one. */
    environment(ref: string): Readonly<Record<string, string>>;
    create(input: CreateSandbox, options?: CallOptions): Promise<CreatedSandbox>;
    list(query: z.output<typeof listSandboxesQuery>): Promise<Sandbox[]>;
    get(ref: string): Promise<SandboxDetail>;
    /** Of one project, or of all. */
    usage(project?: string): Promise<UsageEntry[]>;
    update(ref: string, input: z.output<typeof updateSandboxSchema>): Promise<Sandbox>;
    start(ref: string): Promise<Sandbox>;
    stop(ref: string, graceS: number): Promise<Sandbox>;
    pause(ref: string, keep: 'memory' | 'disk', caller?: AbortSignal): Promise<Sandbox>;
    resume(ref: string): Promise<Sandbox>;
    destroy(ref: string, query?: z.output<typeof destroyQuery>): Promise<Destroyed>;
  };
  readonly snapshots: {
    create(
      ref: string,
      input: z.output<typeof createSnapshotSchema>,
      options?: CallOptions,
    ): Promise<TakenSnapshot>;
    /** Files of several sandboxes at one instant; `also` is done while all of them stand still. Says which snapshot is of which sandbox. */
    createTogether<T>(
      refs: readonly string[],
      input: { readonly name: string; readonly note: string; readonly tags: readonly string[] },
      also: () => Promise<T>,
    ): Promise<{ readonly snapshotIds: ReadonlyMap<string, string>; readonly result: T }>;
    /** Of one sandbox, or of a project, or all. */
    list(of?: { readonly sandbox?: string; readonly project?: string | undefined }): Promise<Snapshot[]>;
    /** What the snapshot belongs to; undefined where there is none. */
    find(snapshotRef: string): Belonging | undefined;
    /** Labels of its sandbox: as they are, or as they were when it was taken where that is gone. */
    labels(snapshotRef: string): Readonly<Record<string, string>>;
    /** By id, or `sandbox:name`; with a sandbox given also by its name alone. */
    get(snapshotRef: string, sandboxRef?: string): Promise<Snapshot>;
    update(snapshotRef: string, input: z.output<typeof updateSnapshotSchema>): Promise<Snapshot>;
    delete(snapshotRef: string, sandboxRef?: string): Promise<void>;
    restore(
      ref: string,
      input: z.output<typeof restoreSchema>,
      options?: CallOptions,
    ): Promise<z.output<typeof restoredSchema>>;
    forkSnapshot(
      snapshotRef: string,
      input: z.output<typeof forkSnapshotSchema>,
      options?: CallOptions,
    ): Promise<Forked>;
    forkSandbox(
      ref: string,
      input: z.output<typeof forkSandboxSchema>,
      options?: CallOptions,
    ): Promise<Forked>;
    export(
      snapshotRef: string,
      options: z.output<typeof exportSchema>,
    ): Promise<{ bytes: AsyncIterable<Uint8Array>; fileName: string }>;
    importContents(): Promise<{ have: string[] }>;
    import(
      file: AsyncIterable<Uint8Array>,
      input: z.output<typeof importQuery>,
      options?: CallOptions,
    ): Promise<Imported>;
  };
  readonly strays: {
    list(): Promise<Stray[]>;
    keep(id: string, input: z.output<typeof keepStraySchema>): Promise<Snapshot>;
    delete(id: string): Promise<void>;
  };
  readonly compare: {
    diff(
      from: string,
      to: string,
      options: Omit<z.output<typeof diffQuery>, 'from' | 'to'>,
      signal?: AbortSignal,
    ): Promise<Diff>;
    patch(
      from: string,
      to: string,
      options: Omit<z.output<typeof patchQuery>, 'from' | 'to'>,
      signal?: AbortSignal,
    ): Promise<Patch>;
    diffFile(
      from: string,
      to: string,
      file: Omit<z.output<typeof fileDiffQuery>, 'from' | 'to'>,
      signal?: AbortSignal,
    ): Promise<z.output<typeof fileDiffSchema>>;
    merge(into: string, input: z.output<typeof mergeSchema>, options?: CallOptions): Promise<Merged>;
    /** Of one project, or of all. */
    lineage(project?: string): Promise<LineageNode[]>;
  };
  readonly git: {
    status(ref: string, query: z.output<typeof gitStatusQuery>, options?: CallOptions): Promise<GitStatus>;
    diff(ref: string, query: z.output<typeof gitDiffQuery>, options?: CallOptions): Promise<GitDiff>;
    clone(ref: string, input: z.output<typeof gitCloneSchema>, options?: CallOptions): Promise<GitCloned>;
    commit(
      ref: string,
      input: z.output<typeof gitCommitSchema>,
      options?: CallOptions,
    ): Promise<GitCommitted>;
    push(ref: string, input: z.output<typeof gitPushSchema>, options?: CallOptions): Promise<GitPushed>;
    merge(
      into: string,
      input: z.output<typeof mergeCommitsSchema>,
      options?: CallOptions,
    ): Promise<MergedCommits>;
  };
  readonly exec: ExecService;
  readonly jobs: JobService;
  readonly terminals: TerminalService;
  readonly files: FileService;
  readonly notes: Vault;
  readonly gateway: {
    setCaller(ref: string, caller: Caller): Promise<Caller>;
    callerOf(ref: string): Promise<Caller>;
    setSecret(name: string, secret: z.output<typeof setSecretSchema>): Promise<void>;
    listSecrets(): Promise<Secret[]>;
    removeSecret(name: string): Promise<void>;
    rekey(): Promise<void>;
    costs(query: z.output<typeof costsQuery>, scope: Scope): Promise<Costs>;
    setBudget(input: z.output<typeof setBudgetSchema>): Promise<Budget>;
    listBudgets(scope: Scope): Promise<Budget[]>;
    removeBudget(key: z.output<typeof removeBudgetQuery>): Promise<void>;
  };
  readonly sessions: Pick<Sessions, 'list' | 'adopt' | 'begin' | 'end'>;
  readonly swarms: {
    prepare(input: z.output<typeof prepareSandboxSchema>, options?: CallOptions): Promise<PreparedSandbox>;
    run(ref: string, input: z.output<typeof runSwarmSchema>, options?: SwarmOptions): Promise<Swarm>;
  };
  readonly runs: RunService;
  readonly runWebhooks: Pick<RunWebhooks, 'list' | 'add' | 'resume' | 'remove'>;
  readonly races: Pick<RaceService, 'start' | 'list' | 'get'>;
  /** For programs in sandboxes, with the token of their run. */
  readonly inside: InsideService;
  readonly network: {
    patch(ref: string, input: z.output<typeof networkPatchSchema>): Promise<Sandbox>;
    connections(
      ref: string,
      query: z.output<typeof connectionsQuery>,
      signal?: AbortSignal,
    ): Promise<NetworkConnection[]>;
    questions(ref: string): Promise<Question[]>;
    answer(ref: string, answer: z.output<typeof answerQuestionSchema>): Promise<Answered>;
  };
  readonly ports: {
    add(ref: string, guestPort: number, hostPort?: number): Promise<PortForward>;
    list(ref: string): Promise<PortForward[]>;
    remove(ref: string, guestPort: number): Promise<void>;
    /** Until something inside takes connections there. */
    wait(
      ref: string,
      guestPort: number,
      timeoutMs: number,
      signal?: AbortSignal,
    ): Promise<{ port: number; waited_ms: number }>;
  };
  readonly images: {
    /** `used_by` names what belongs to that project only, where one is given. */
    list(project?: string): Promise<Image[]>;
    get(ref: string, project?: string): Promise<Image>;
    make(input: z.output<typeof makeImageSchema>, options?: CallOptions): Promise<Image>;
    pull(name: string, options?: PullOptions): Promise<Image>;
    ensure(name: string, options?: PullOptions): Promise<Image>;
    prune(input: z.output<typeof pruneImagesSchema>): Promise<z.output<typeof prunedImagesSchema>>;
    importTar(
      name: string | undefined,
      tar: AsyncIterable<Uint8Array>,
      options?: CallOptions,
    ): Promise<Image>;
    sendContext(tar: AsyncIterable<Uint8Array>): Promise<z.output<typeof buildContextSchema>>;
    build(input: z.output<typeof buildImageSchema>, options?: BuildOptions): Promise<Image>;
    commit(input: z.output<typeof commitImageSchema>, options?: CallOptions): Promise<Image>;
    push(ref: string, to: string | undefined, options?: PushOptions): Promise<PushedImage>;
    export(ref: string): Promise<{ bytes: AsyncIterable<Uint8Array>; fileName: string }>;
    remove(ref: string): Promise<void>;
  };
  readonly registries: {
    list(): Promise<z.output<typeof registryLoginSchema>[]>;
    login(
      input: z.output<typeof loginSchema>,
      signal?: AbortSignal,
    ): Promise<z.output<typeof registryLoginSchema>>;
    logout(registry: string): Promise<void>;
  };
  readonly pageSessions: {
    link(principal: Principal): PageLink;
    /** Uses the code of a link up. */
    open(code: string): SignedIn;
    authenticate(key: string, cookie: string | undefined): Principal | undefined;
    close(key: string): void;
    describe(principal: Principal): Whoami;
  };
  readonly tokens: {
    authenticate(secret: string): Principal | undefined;
    list(): Promise<Token[]>;
    create(input: z.output<typeof createTokenSchema>): Promise<z.output<typeof createdTokenSchema>>;
    revoke(ref: string): Promise<void>;
  };
  readonly events: {
    list(query: {
      after: number;
      limit: number;
      sandbox?: string | undefined;
      type?: string | undefined;
      scope: Scope;
    }): Promise<{ events: Event[]; last_seq: number }>;
    /** From after that sequence number on, without a gap, until the signal. */
    follow(
      query: { after: number; sandbox?: string | undefined; type?: string | undefined; scope: Scope },
      signal: AbortSignal,
    ): AsyncIterable<Event>;
  };
  readonly forge: ForgeService;
  readonly branches: BranchService;
  readonly guardian: Guardian;
  readonly runWatch: RunWatch;
  readonly doctor: { examine(): Promise<Doctor> };
  readonly health: { check(): Promise<Health> };
  readonly metrics: { text(): Promise<string> };
}
