import { chmodSync, existsSync, mkdirSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { TreeProgram } from '../trees/tree-program.ts';
import { parseEngine, probeEngines } from './engine.ts';
import { killPoint } from './kill-point.ts';
import { findWorkspace, WorkspaceLayout } from './layout.ts';
import { checkName } from './names.ts';
import { formatVersion, type RepositoryRecord, writeRepository } from './repository-record.ts';
import type { EngineName } from './snapshot-record.ts';
import type { WorkspaceEvent } from './workspace-event.ts';
import { userName } from './workspace-session.ts';

export interface CreateWorkspaceOptions {
  readonly parent: string;
  readonly name: string;
  /** Must be had: else nothing is made. */
  readonly engine?: string | undefined;
  /** Used where it can be had. */
  readonly preferredEngine?: string | undefined;
  /** It gets a directory for its worktree that is not a subvolume. */
  readonly plainDirectory?: boolean;
  readonly notice: (message: string) => void;
  readonly mountsFile?: string;
}

const around = (directory: string): string | undefined => {
  try {
    return findWorkspace(directory).layout.root;
  } catch (error) {
    if (error instanceof CoppiceError && error.code === 'not_found') return undefined;
    throw error;
  }
};

/** What an interrupted `init` left: a control directory without the file that makes it a workspace. */
const clearHalfMade = async (root: string, notice: (message: string) => void): Promise<void> => {
  const found = readdirSync(root);
  if (!found.includes('.jvs') || found.some((name) => name !== '.jvs' && name !== 'main')) return;
  const main = join(root, 'main');
  if (existsSync(join(root, '.jvs', 'repository.json')) || (existsSync(main) && readdirSync(main).length > 0))
    return;
  const program = new TreeProgram();
  try {
    await program.request('remove', { path: main });
    await program.request('remove', { path: join(root, '.jvs') });
  } finally {
    program.close();
  }
  notice('an interrupted init was cleared away');
};

/** The program's own umask is strict; the worktree's directory shall have the mode that mkdir would give it. */
const makeSubvolume = async (program: TreeProgram, path: string): Promise<void> => {
  await program.request('subvolume-create', { path });
  chmodSync(path, 0o777 & ~process.umask());
};

/** Makes the directory NAME with a first worktree NAME/main. On failure nothing is left of it. */
export const createWorkspace = async (
  options: CreateWorkspaceOptions,
): Promise<RepositoryRecord & { root: string }> => {
  const wanted = options.engine ?? (options.preferredEngine || undefined);
  const asked: EngineName | null = wanted === undefined ? null : parseEngine(wanted);
  const parent = realpathSync(options.parent);
  const root = join(parent, checkName('workspace', options.name));
  const existed = existsSync(root);
  if (existed) await clearHalfMade(root, options.notice);
  if (existed && readdirSync(root).length > 0) {
    throw new CoppiceError('name_taken', `${root} exists already and is not empty`, {
      hint: `Choose another name. To make a workspace of it: jvs init ${options.name} --adopt moves what is in it to ${options.name}/main.`,
    });
  }
  const outer = around(parent);
  const layout = new WorkspaceLayout(root);
  const program = new TreeProgram({ notice: options.notice });
  try {
    if (!existed) mkdirSync(root);
    for (const folder of [layout.control, ...layout.folders]) mkdirSync(folder, { mode: 0o700 });
    const probe = await probeEngines(program, root, layout.temporary, options.mountsFile);
    // A subvolume inside a worktree would be left out of the snapshots of that worktree.
    const plain = outer !== undefined || options.plainDirectory === true;
    const possible = plain ? probe.engines.filter((engine) => engine !== 'btrfs') : probe.engines;
    if (outer) options.notice(`this is inside the workspace ${outer}, and will be part of its snapshots`);
    const best = possible[0] ?? 'copy';
    const engine = asked && possible.includes(asked) ? asked : best;
    const requested = asked === engine ? null : asked;
    if (requested) {
      const problem = `the engine ${requested} cannot be used here (${probe.lacks[requested] ?? (outer ? 'inside another workspace' : 'the directory is not a subvolume')})`;
      if (options.engine !== undefined) {
        throw new CoppiceError('unsupported', problem, {
          hint: `Leave out --engine to use ${engine}, or choose one of: ${possible.join(', ')}.`,
        });
      }
      options.notice(`${problem}: using ${engine} instead`);
    }
    if (engine === 'btrfs') {
      await makeSubvolume(program, layout.payload('main'));
    } else mkdirSync(layout.payload('main'));
    const repository: RepositoryRecord = {
      format_version: formatVersion,
      repo_id: crypto.randomUUID(),
      created_at: new Date().toISOString(),
      engine,
      requested_engine: requested,
    };
    const first: WorkspaceEvent[] = [
      { type: 'init', data: { repo_id: repository.repo_id, engine } },
      { type: 'worktree_create', data: { name: 'main', base: null, root_hash: null } },
    ];
    await program.request('begin-log', {
      path: layout.logFile,
      by: userName(),
      type: first.map(({ type }) => type),
      data: first.map(({ data }) => JSON.stringify(data)),
    });
    killPoint('init-before-publish');
    // Last, as this file is what makes the directory a workspace.
    writeRepository(layout, repository);
    return { ...repository, root };
  } catch (error) {
    const cleaner = new TreeProgram();
    await cleaner.request('remove', { path: layout.payload('main') });
    cleaner.close();
    rmSync(existed ? layout.control : root, { recursive: true, force: true });
    throw error;
  } finally {
    program.close();
  }
};
