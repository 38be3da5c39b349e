import { existsSync, lstatSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join, normalize, relative, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { TreeWords } from '../trees/tree-program.ts';
import { chooseEngine, downgradeNotice, type EngineChoice, parseEngine, probeEngines } from './engine.ts';
import { clearIntent, writeIntent } from './intent.ts';
import { juicefsClone } from './juicefs.ts';
import { killPoint } from './kill-point.ts';
import { checkNote, checkTag } from './names.ts';
import { rootHash, type ScanAnswer } from './scan-answer.ts';
import type { EngineName, SnapshotRecord } from './snapshot-record.ts';
import { shareIndex, writeIndexBasis } from './workspace-index.ts';
import type { WorkspaceSession } from './workspace-session.ts';
import { indexHolds, payloadOf } from './worktree-scan.ts';

export interface SnapshotRequest {
  readonly worktree: string;
  readonly note?: string;
  readonly tags?: readonly string[];
  /** Relative to the worktree's directory; none: all of it. */
  readonly paths?: readonly string[];
  readonly automatic?: boolean;
}

export type KnownTree = (found: ScanAnswer) => boolean;

const cloneAttempts = 3;

/** Paths as the tree knows them; each must exist, and lie inside. */
export const checkPaths = (
  payload: string,
  from: string,
  paths: readonly string[],
  mustExist: boolean,
): string[] => {
  const found = paths.map((path) => {
    const inside = normalize(relative(payload, withoutLinks(resolve(from, path)))).replace(/\/+$/, '');
    if (inside === '..' || inside.startsWith('../')) {
      throw new CoppiceError('invalid_argument', `${path} is outside the worktree`, {
        hint: 'Name paths inside the worktree.',
      });
    }
    if (mustExist && !existsNoFollow(join(payload, inside))) {
      throw new CoppiceError('not_found', `there is no ${path} in the worktree`);
    }
    return inside === '.' ? '' : inside;
  });
  return found.includes('') ? [] : [...new Set(found)].sort();
};

/** The worktree may be reached through symbolic links; what is named itself may be one, and is not followed. */
const withoutLinks = (path: string): string => {
  const parent = dirname(path);
  if (parent === path) return path;
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found && !found.isSymbolicLink() ? realpathSync(path) : join(withoutLinks(parent), basename(path));
};

const existsNoFollow = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined;

const askedEngine = (session: WorkspaceSession): EngineName => {
  const setting = session.settings.default_engine;
  return parseEngine(session.env.JVS_ENGINE || (setting === 'auto' ? session.repository.engine : setting));
};

/** Whether a snapshot clones the whole directory before anything is known about it. */
export const clonesFirst = (session: WorkspaceSession): boolean =>
  ['btrfs', 'juicefs-clone'].includes(askedEngine(session));

const engineFor = async (session: WorkspaceSession, payload: string): Promise<EngineChoice> => {
  const engine = askedEngine(session);
  if (engine === 'copy') return { engine, requested: null, reason: null };
  const { engines } = await probeEngines(
    session.program,
    payload,
    session.layout.temporary,
    session.mountsFile,
  );
  const { subvolume } = await session.program.request<{ subvolume: boolean }>('probe', { dir: payload });
  const choice = chooseEngine(engine, subvolume ? engines : engines.filter((name) => name !== 'btrfs'));
  if (engine === 'btrfs' && choice.requested)
    return { ...choice, reason: 'the worktree is not a btrfs subvolume' };
  return choice;
};

class Taking {
  readonly #session: WorkspaceSession;
  readonly #request: SnapshotRequest;
  readonly #id: string;
  readonly #pack: string;
  #answer: ScanAnswer | undefined;

  constructor(session: WorkspaceSession, request: SnapshotRequest) {
    this.#session = session;
    this.#request = request;
    this.#id = session.newSnapshotId();
    this.#pack = session.newPack();
  }

  get #newIndex(): string {
    return join(this.#session.layout.temporary, `${this.#id}.index`);
  }

  /** Answers null where `isKnown` says that another snapshot holds the same; `root` and `drop` are for that case. */
  async run(isKnown?: KnownTree): Promise<{ record: SnapshotRecord | null; root: string; drop: () => void }> {
    const { layout, program } = this.#session;
    writeIntent(layout, this.#id, {
      operation: 'snapshot',
      worktree: this.#request.worktree,
      snapshotId: this.#id,
      pack: this.#pack,
    });
    killPoint('snapshot-intent');
    try {
      const record = await this.#store();
      killPoint('snapshot-stored');
      if (this.#answer && isKnown?.(this.#answer)) {
        rmSync(this.#newIndex, { force: true });
        clearIntent(layout, this.#id);
        return {
          record: null,
          root: record.root,
          drop: () => rmSync(layout.pack(this.#pack), { force: true }),
        };
      }
      const partial = record.partial_paths !== null;
      await this.#session.commit({
        type: 'snapshot',
        data: { snapshot: record, saved_root_hash: partial ? null : record.payload_root_hash },
      });
      killPoint('snapshot-committed');
      if (!partial) this.#adoptIndex(record);
      killPoint('snapshot-indexed');
      clearIntent(layout, this.#id);
      return { record, root: record.root, drop: () => undefined };
    } catch (error) {
      // The program may have ended with the error; what is half made goes with the intent, now or later.
      if (!this.#session.state.snapshots.has(this.#id)) {
        rmSync(layout.pack(this.#pack), { force: true });
        rmSync(this.#newIndex, { force: true });
        if (!existsSync(layout.tree(this.#id))) clearIntent(layout, this.#id);
        else
          await program
            .request('remove', { path: layout.tree(this.#id) })
            .then(() => clearIntent(layout, this.#id));
      }
      throw error;
    }
  }

  #scan(directory: string, extra: TreeWords): Promise<ScanAnswer> {
    const { layout, program } = this.#session;
    const { worktree, paths = [] } = this.#request;
    return program.request<ScanAnswer>('scan', {
      store: layout.control,
      dir: directory,
      index: layout.index(worktree),
      newIndex: paths.length > 0 ? undefined : this.#newIndex,
      basis: this.#id,
      locations: indexHolds(this.#session, worktree),
      pack: this.#pack,
      only: paths,
      ...extra,
    });
  }

  async #store(): Promise<SnapshotRecord> {
    const { worktree, paths = [] } = this.#request;
    const payload = payloadOf(this.#session, worktree);
    const choice = await engineFor(this.#session, payload);
    const notice = downgradeNotice(choice);
    if (notice) this.#session.notice(notice);
    const wholeTree = paths.length === 0 && (choice.engine === 'btrfs' || choice.engine === 'juicefs-clone');
    if (wholeTree) {
      const answer =
        choice.engine === 'btrfs' ? await this.#subvolume(payload) : await this.#juicefs(payload);
      if (answer) return this.#record(choice, choice.engine, 'tree', answer);
    }
    const shares = choice.engine === 'btrfs' || choice.engine === 'reflink-copy';
    const engine: EngineName = shares ? 'reflink-copy' : 'copy';
    const answer = await this.#scan(payload, { keep: true, reflink: shares });
    if (answer.reflinksRefused > 0) {
      this.#session.notice(`${answer.reflinksRefused} files could not share their blocks and were copied`);
    }
    return this.#record(choice, engine, 'objects', answer);
  }

  /** The whole directory at one instant; hashing happens afterwards, on what can no longer change. */
  async #subvolume(payload: string): Promise<ScanAnswer | undefined> {
    const { layout, program, notice } = this.#session;
    const tree = layout.tree(this.#id);
    await program.request('moment', { store: layout.control });
    await program.request('subvolume-snapshot', { from: payload, to: tree, readOnly: true });
    killPoint('snapshot-subvolume');
    const answer = await this.#scan(tree, { keep: false, tree: true, live: payload });
    if (answer.nested === null) return answer;
    notice(
      `${answer.nested} is a btrfs subvolume of its own, which a snapshot would leave out: using reflink-copy instead`,
    );
    await program.request('remove', { path: tree });
    rmSync(layout.pack(this.#pack), { force: true });
    rmSync(this.#newIndex, { force: true });
    return undefined;
  }

  async #juicefs(payload: string): Promise<ScanAnswer | undefined> {
    const { layout, program, notice } = this.#session;
    const tree = layout.tree(this.#id);
    const answer = await this.#scan(payload, { keep: false });
    for (let attempt = 1; attempt <= cloneAttempts; attempt += 1) {
      try {
        await juicefsClone(payload, tree);
      } catch (error) {
        if (!(error instanceof CoppiceError)) throw error;
        notice(`${error.message}: using copy instead`);
        break;
      }
      const pack = this.#session.newPack();
      const again = await program.request<ScanAnswer>('scan', {
        store: layout.control,
        dir: payload,
        index: existsSync(this.#newIndex) ? this.#newIndex : layout.index(this.#request.worktree),
        pack,
        temporary: true,
      });
      rmSync(layout.temporaryPack(pack), { force: true });
      if (rootHash(again.root) === rootHash(answer.root)) return answer;
      await program.request('remove', { path: tree });
      if (attempt === cloneAttempts)
        notice('files change all the time here, which a clone cannot follow: using copy instead');
    }
    await program.request('remove', { path: tree });
    rmSync(layout.pack(this.#pack), { force: true });
    rmSync(this.#newIndex, { force: true });
    return undefined;
  }

  #record(
    choice: EngineChoice,
    engine: EngineName,
    storage: 'objects' | 'tree',
    answer: ScanAnswer,
  ): SnapshotRecord {
    const { worktree, note = '', tags = [], paths = [], automatic = false } = this.#request;
    this.#answer = answer;
    if (answer.sockets > 0)
      this.#session.notice(
        `${answer.sockets} sockets were left out: they mean nothing without their process`,
      );
    return {
      snapshot_id: this.#id,
      parent_id: this.#session.state.worktrees.get(worktree)?.head_snapshot_id ?? null,
      worktree_name: worktree,
      created_at: new Date().toISOString(),
      note: checkNote(note),
      tags: [...new Set(tags.map(checkTag))],
      engine,
      requested_engine: choice.requested ?? (choice.engine === engine ? null : choice.engine),
      storage,
      payload_root_hash: rootHash(answer.root),
      root: answer.root,
      partial_paths: paths.length > 0 ? paths : null,
      automatic,
      files: answer.files,
      bytes: answer.bytes,
      new_bytes: answer.newBytes,
    };
  }

  #adoptIndex(record: SnapshotRecord): void {
    const { layout } = this.#session;
    const index = layout.index(record.worktree_name);
    if (existsSync(this.#newIndex)) renameSync(this.#newIndex, index);
    else writeIndexBasis(index, this.#id);
    if (record.storage === 'tree') shareIndex(index, layout.treeIndex(this.#id));
  }
}

/** The caller holds the lock of the worktree, and the store's as a sharer. */
export const takeSnapshot = async (
  session: WorkspaceSession,
  request: SnapshotRequest,
): Promise<SnapshotRecord> => {
  checkNote(request.note ?? '');
  for (const tag of request.tags ?? []) checkTag(tag);
  const { record } = await new Taking(session, request).run();
  return record as SnapshotRecord;
};

/** Takes one only when the worktree is not what `isKnown` knows, in the same single walk. */
export const takeUnlessKnown = (session: WorkspaceSession, request: SnapshotRequest, isKnown: KnownTree) =>
  new Taking(session, request).run(isKnown);
