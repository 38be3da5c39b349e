import { existsSync, mkdirSync } from 'node:fs';
import { userInfo } from 'node:os';
import { CoppiceError } from '@coppice/protocol/errors';
import { TreeProgram, type TreeWords } from '../trees/tree-program.ts';
import { giveToOwner } from './atomic-file.ts';
import { findWorkspace, type WorkspaceLayout } from './layout.ts';
import { refuseLinks } from './refuse-links.ts';
import { type RepositoryRecord, readRepository } from './repository-record.ts';
import { readSettings, type WorkspaceSettings } from './settings.ts';
import { sweepTemporaries } from './sweep-temporaries.ts';
import type { WorkspaceEvent } from './workspace-event.ts';
import { decodeState, type StateAnswer, type WorkspaceState } from './workspace-state.ts';

export interface SessionOptions {
  readonly directory: string;
  /** Told what people should know: a downgrade, something recovered, something left out. */
  readonly notice?: (message: string) => void;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The table of mounts in which a JuiceFS is looked for. */
  readonly mountsFile?: string;
  /** Count on the terminal what is read. */
  readonly progress?: boolean;
}

const lockPatienceMs = 30 * 60 * 1000;

/** As the log names them. */
export const userName = (): string => {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
};

/** One command at work on one workspace. */
export class WorkspaceSession implements Disposable {
  readonly layout: WorkspaceLayout;
  /** The worktree that the command was given in. */
  readonly worktree: string;
  readonly notice: (message: string) => void;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly mountsFile: string | undefined;
  readonly #progress: boolean;
  readonly #user = userName();
  #repository: RepositoryRecord | undefined;
  #program: TreeProgram | undefined;
  #held = 0;
  #state: WorkspaceState | CoppiceError | undefined;

  constructor(options: SessionOptions) {
    const { layout, worktree } = findWorkspace(options.directory);
    refuseLinks(layout);
    this.layout = layout;
    this.worktree = worktree;
    this.notice = options.notice ?? (() => undefined);
    this.env = options.env ?? process.env;
    this.mountsFile = options.mountsFile;
    this.#progress = options.progress ?? false;
    this.#makeFolders();
  }

  /** Those that are empty get lost where a workspace is copied by git, zip and the like. */
  #makeFolders(): void {
    const missing = this.layout.folders.filter((folder) => !existsSync(folder));
    for (const folder of missing) {
      mkdirSync(folder, { mode: 0o700 });
      giveToOwner(folder);
    }
    if (missing.length > 0)
      this.notice(`recovered: missing directories of the workspace were made again: ${missing.join(', ')}`);
  }

  get repository(): RepositoryRecord {
    this.#repository ??= readRepository(this.layout);
    return this.#repository;
  }

  /** One that failed is replaced, unless locks were held that are gone with it. */
  get program(): TreeProgram {
    if (this.#program?.hasEnded && this.#held === 0) this.#program = undefined;
    this.#program ??= new TreeProgram({
      notice: this.notice,
      progress: this.#progress,
      ownerOf: this.layout.control,
    });
    return this.#program;
  }

  /** Asks for something about this workspace. */
  request<Answer>(operation: string, words: TreeWords = {}): Promise<Answer> {
    const { control } = this.layout;
    return this.program.request<Answer>(operation, { store: control, by: this.#user, ...words });
  }

  /** As it was when this session last looked, or wrote. */
  get state(): WorkspaceState {
    if (this.#state instanceof CoppiceError) throw this.#state;
    if (!this.#state) throw new CoppiceError('internal', 'the workspace has not been read yet');
    return this.#state;
  }

  get logIsReadable(): boolean {
    return !(this.#state instanceof CoppiceError);
  }

  get settings(): WorkspaceSettings {
    return readSettings(this.layout);
  }

  /** After a lock was taken, what others wrote meanwhile counts. A log that cannot be read is told of by who needs it. */
  async refresh(): Promise<void> {
    this.#repository = undefined;
    try {
      this.#repository = readRepository(this.layout);
      const answer = await this.request<StateAnswer | { problem: string }>('state');
      if ('problem' in answer) throw new CoppiceError('corrupt', answer.problem);
      this.#state = decodeState(answer);
    } catch (error) {
      if (!(error instanceof CoppiceError && error.code === 'corrupt')) throw error;
      this.#state = new CoppiceError('corrupt', error.message, {
        hint: 'Run `jvs doctor` to see what is damaged, and `jvs doctor --repair` to repair it.',
        cause: error,
      });
    }
  }

  async commit({ type, data }: WorkspaceEvent): Promise<void> {
    await this.request('append', { type, data: JSON.stringify(data) });
    await this.refresh();
  }

  /** Beside others, or alone, on what is stored. */
  async withStore<Result>(shared: boolean, work: () => Promise<Result>): Promise<Result> {
    await this.lock('store', shared);
    try {
      await this.refresh();
      return await work();
    } finally {
      await this.unlock('store');
    }
  }

  async tryLock(name: string, shared = false, waitMs = 0): Promise<boolean> {
    const path = this.layout.lock(name);
    const { locked } = await this.program.request<{ locked: boolean }>('lock', { path, shared, waitMs });
    if (locked) this.#held += 1;
    return locked;
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
    const { program } = this;
    this.#held -= names.length;
    if (program.hasEnded) sweepTemporaries(this.layout, program.pid);
    else for (const name of names) await program.request('unlock', { path: this.layout.lock(name) });
  }

  [Symbol.dispose](): void {
    this.#program?.close();
  }
}
