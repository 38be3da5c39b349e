import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { SpawnedProgram } from '../trees/spawned-program.ts';
import type { TreeProgram } from '../trees/tree-program.ts';
import { EventLog, type LogLine, type LogPosition } from './event-log.ts';
import { findWorkspace, type WorkspaceLayout } from './layout.ts';
import { randomBytes } from './random-bytes.ts';
import { readSettings, type WorkspaceSettings } from './settings.ts';
import type { EngineName } from './snapshot-record.ts';
import { sweepTemporaries } from './sweep-temporaries.ts';
import type { WorkspaceEvent } from './workspace-event.ts';
import { WorkspaceState } from './workspace-state.ts';

export const formatVersion = 1;

export interface RepositoryRecord {
  readonly format_version: number;
  readonly repo_id: string;
  readonly created_at: string;
  readonly engine: EngineName;
  readonly requested_engine: EngineName | null;
}

export interface SessionOptions {
  readonly directory: string;
  /** Told what people should know: a downgrade, something recovered, something left out. */
  readonly notice?: (message: string) => void;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The table of mounts in which a JuiceFS is looked for. */
  readonly mountsFile?: string;
  /** One that runs already; others are started when they are needed. */
  readonly program?: TreeProgram | undefined;
}

export const systemMounts = '/proc/mounts';
const lockPatienceMs = 30 * 60 * 1000;
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** One command at work on one workspace. */
export class WorkspaceSession implements Disposable {
  readonly layout: WorkspaceLayout;
  /** The worktree that the command was given in. */
  readonly worktree: string;
  readonly repository: RepositoryRecord;
  readonly log: EventLog;
  readonly notice: (message: string) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly mountsFile: string;
  #program: TreeProgram | undefined;
  #state: WorkspaceState | undefined;
  #readTo: LogPosition | undefined;

  constructor(options: SessionOptions) {
    const { layout, worktree } = findWorkspace(options.directory);
    this.layout = layout;
    this.worktree = worktree;
    this.notice = options.notice ?? (() => undefined);
    this.env = options.env ?? process.env;
    this.mountsFile = options.mountsFile ?? systemMounts;
    this.#program = options.program;
    this.repository = JSON.parse(readFileSync(layout.repositoryFile, 'utf8')) as RepositoryRecord;
    if (this.repository.format_version !== formatVersion) {
      throw new CoppiceError(
        'unsupported',
        `the workspace ${layout.root} has format ${this.repository.format_version}; this program knows ${formatVersion}`,
        { hint: 'Use the version of jvs that made it.' },
      );
    }
    this.log = new EventLog(layout.logFile);
  }

  get program(): TreeProgram {
    this.#program ??= new SpawnedProgram();
    return this.#program;
  }

  get state(): WorkspaceState {
    if (!this.#state) this.refresh();
    return this.#state as WorkspaceState;
  }

  get logIsReadable(): boolean {
    try {
      return this.state !== undefined;
    } catch (error) {
      if (error instanceof CoppiceError && error.code === 'corrupt') return false;
      throw error;
    }
  }

  get settings(): WorkspaceSettings {
    return readSettings(this.layout);
  }

  /** After a lock was taken, what others wrote meanwhile counts. A long history is not read again for that. */
  refresh(): void {
    const { lines, end } = this.log.read(this.#readTo);
    this.#state ??= new WorkspaceState();
    this.#state.add(lines);
    this.#readTo = end;
  }

  async commit(...events: WorkspaceEvent[]): Promise<LogLine[]> {
    await this.lock('log');
    try {
      // A restore changes files that are not synced either; without its line the worktree just counts as changed.
      const durable = events.some(({ type }) => type !== 'restore');
      return this.log.append(events, durable);
    } finally {
      await this.unlock('log');
      this.refresh();
    }
  }

  /** Beside others, or alone, on what is stored. */
  async withStore<Result>(shared: boolean, work: () => Promise<Result>): Promise<Result> {
    await this.lock('store', shared);
    try {
      this.refresh();
      return await work();
    } finally {
      await this.unlock('store');
    }
  }

  async tryLock(name: string, shared = false, waitMs = 0): Promise<boolean> {
    const path = this.layout.lock(name);
    return (await this.program.request<{ locked: boolean }>('lock', { path, shared, waitMs })).locked;
  }

  async lock(name: string, shared = false): Promise<void> {
    if (await this.tryLock(name, shared, 500)) return;
    this.notice(`waiting for another command that works on this workspace (${name})`);
    if (await this.tryLock(name, shared, lockPatienceMs)) return;
    throw new CoppiceError('in_use', `another command has held the lock ${name} for half an hour`, {
      hint: 'Look for a jvs that hangs; the lock goes when that process ends.',
    });
  }

  /** Locks end with the program that held them; after an error in it, the next request starts a new one. */
  async unlock(...names: string[]): Promise<void> {
    if (this.program.hasEnded) {
      sweepTemporaries(this.layout, this.program.pid);
      this.#program = undefined;
      return;
    }
    for (const name of names) await this.program.request('unlock', { path: this.layout.lock(name) });
  }

  newPack(): string {
    return randomBytes(8).toString('hex').replace(/^[0f]/, '1');
  }

  /** Random, so that its first eight characters tell it from all others of this workspace. */
  newSnapshotId(): string {
    for (;;) {
      const id = [...randomBytes(16)].map((byte) => alphabet[byte % alphabet.length]).join('');
      // A name of eight digits could be taken for a number; one letter at least makes it an id to the eye.
      if (!/[a-z]/.test(id.slice(0, 8))) continue;
      if (![...this.state.snapshots.keys()].some((other) => other.startsWith(id.slice(0, 8)))) return id;
    }
  }

  [Symbol.dispose](): void {
    this.#program?.close();
  }
}
