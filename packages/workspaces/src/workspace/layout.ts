import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';

/** Where everything of a workspace lies. Nothing of ours stays inside a worktree's own directory: a restore on btrfs works there for a moment. */
export class WorkspaceLayout {
  readonly root: string;
  readonly control: string;

  constructor(root: string) {
    this.root = root;
    this.control = join(root, '.jvs');
  }

  get repositoryFile(): string {
    return join(this.control, 'repository.json');
  }
  get settingsFile(): string {
    return join(this.control, 'config.json');
  }
  get logFile(): string {
    return join(this.control, 'log.jsonl');
  }
  get intents(): string {
    return join(this.control, 'intents');
  }
  get plans(): string {
    return join(this.control, 'gc');
  }
  get packs(): string {
    return join(this.control, 'packs');
  }
  get blobs(): string {
    return join(this.control, 'blobs');
  }
  get trees(): string {
    return join(this.control, 'trees');
  }
  get temporary(): string {
    return join(this.control, 'tmp');
  }
  get kept(): string {
    return join(this.control, 'kept');
  }
  get folders(): string[] {
    return ['intents', 'gc', 'packs', 'blobs', 'trees', 'tmp', 'indexes', 'locks', 'kept'].map((name) =>
      join(this.control, name),
    );
  }
  pack(pack: string): string {
    return join(this.packs, `${pack}.pack`);
  }
  temporaryPack(pack: string): string {
    return join(this.temporary, `${pack}.pack`);
  }
  tree(snapshotId: string): string {
    return join(this.trees, snapshotId);
  }
  treeIndex(snapshotId: string): string {
    return join(this.trees, `${snapshotId}.index`);
  }
  index(worktree: string): string {
    return join(this.control, 'indexes', `${worktree}.index`);
  }
  lock(name: string): string {
    return join(this.control, 'locks', name);
  }
  /** What a worktree adds to the workspace: its own folder, or for the first one its payload itself. */
  worktreeFolder(worktree: string): string {
    return worktree === 'main' ? join(this.root, 'main') : join(this.root, 'worktrees', worktree);
  }
  payload(worktree: string): string {
    return worktree === 'main' ? join(this.root, 'main') : join(this.root, 'worktrees', worktree, 'main');
  }
}

export interface WorkspacePlace {
  readonly layout: WorkspaceLayout;
  /** The worktree that the directory is in; the first one when it is in none. */
  readonly worktree: string;
}

/** `init` writes this file last. Where it is gone and something is stored, the workspace is damaged, and not half made. */
const isWorkspace = (layout: WorkspaceLayout): boolean =>
  existsSync(layout.repositoryFile) || (existsSync(layout.packs) && readdirSync(layout.packs).length > 0);

/** The workspace around a directory: the nearest one above it. */
export const findWorkspace = (directory: string): WorkspacePlace => {
  let real: string;
  try {
    real = realpathSync(directory);
  } catch (cause) {
    throw new CoppiceError('not_found', `there is no directory ${directory}`, { cause });
  }
  for (let folder = real; ; folder = dirname(folder)) {
    const layout = new WorkspaceLayout(folder);
    if (isWorkspace(layout)) {
      const [first, second] = relative(folder, real).split(sep);
      return { layout, worktree: first === 'worktrees' && second ? second : 'main' };
    }
    if (folder === dirname(folder)) break;
  }
  throw new CoppiceError('not_found', `${directory} is not inside a workspace`, {
    hint: 'Make one with `jvs init NAME`, or go into one with cd.',
  });
};
