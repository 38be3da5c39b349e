import { join } from 'node:path';
import {
  type ApplyMergeOptions,
  applyMerge,
  type DiskStore,
  diffTrees,
  type LayeredTree,
  type MergeConflict,
  type PoolServer,
  planMerge,
  sideOf,
  type TreeChange,
  UpperWriter,
} from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import type { Network } from '@coppice/runtime';
import type { SandboxRecord } from '../../db/sandbox-table.ts';
import { type Bench, withBench } from '../../sandboxes/bench.ts';
import { diskBytes, type MachineStarter } from '../../sandboxes/machine-starter.ts';
import type { TreeAccess } from '../tree-access.ts';
import { BenchGit } from './bench-git.ts';
import { type ChangedRepository, isInternal, type MergeTrees } from './changed-repositories.ts';
import { type MergedRepository, RepositoryMerge } from './merge-repository.ts';

export interface MergedTreesParts {
  readonly disks: DiskStore;
  readonly starter: MachineStarter;
  readonly network: Network;
  readonly ids: IdSource;
  readonly trees: TreeAccess;
  readonly server: PoolServer;
}

/** Both sides of a merge, each as a sandbox and as a snapshot of it. */
export interface MergeSides {
  readonly into: SandboxRecord;
  readonly from: SandboxRecord;
  readonly oursId: string;
  readonly theirsId: string;
  readonly trees: MergeTrees;
}

export interface MergeRequest {
  readonly choices: ApplyMergeOptions;
  /** Which changes of theirs are wanted. */
  readonly isMeant: (path: string) => boolean;
}

export interface MergedTree {
  /** A snapshot of ours with theirs merged in; undefined where a conflict has no side yet. The caller removes it. */
  readonly snapshotId: string | undefined;
  readonly repositories: readonly Pick<MergedRepository, 'path' | 'commits'>[];
  readonly conflicts: readonly MergeConflict[];
  readonly skipped: readonly string[];
}

/**
 * Makes the tree that a merge leads to, beside both sides, where repositories changed on both: git merges these, and all that git does
 * not look after is merged as files.
 */
export class MergedTrees {
  readonly #parts: MergedTreesParts;

  constructor(parts: MergedTreesParts) {
    this.#parts = parts;
  }

  async make(
    sides: MergeSides,
    changed: readonly ChangedRepository[],
    request: MergeRequest,
    signal: AbortSignal,
  ): Promise<MergedTree> {
    const { disks, ids } = this.#parts;
    const id = `tmp-${ids.next('snapshot')}`;
    const moved = changed.filter((repository) => repository.moved);
    try {
      await disks.cloneDisk(sides.oursId, id, diskBytes(sides.into), { signal });
      const tree = this.#ofDisk(sides.into, id);
      const merged =
        moved.length === 0 ? [] : await this.#mergeRepositories(sides, moved, request, tree, signal);
      const conflicts = merged.flatMap((repository) => repository.conflicts);
      const byGit = new GitPaths(changed, merged);
      const isFile = (path: string): boolean => !byGit.has(path);
      const server = this.#parts.server.until(signal);
      const { base, theirs } = sides.trees;
      const plan = await planMerge(server, base, tree, theirs, {
        signal,
        carries: (path) => isFile(path) && request.isMeant(path),
        heeds: isFile,
      });
      conflicts.push(...plan.conflicts);
      const answer = {
        repositories: merged.map(({ path, commits }) => ({ path, commits })),
        conflicts,
        skipped: plan.skipped,
      };
      if (conflicts.some(({ path }) => sideOf(request.choices, path) === undefined))
        return { ...answer, snapshotId: undefined };
      const writer = new UpperWriter(server, tree);
      await applyMerge(server, plan, theirs, writer, { ...request.choices, makesParents: true });
      await disks.snapshotDisk(id, id, { signal });
      return { ...answer, snapshotId: id };
    } finally {
      await disks.removeDisk(id);
    }
  }

  /** Writes what git made of them to the tree; with a conflict, nothing. */
  async #mergeRepositories(
    { into, from, oursId, theirsId, trees }: MergeSides,
    moved: readonly ChangedRepository[],
    { choices }: MergeRequest,
    tree: LayeredTree,
    signal: AbortSignal,
  ): Promise<MergedRepository[]> {
    const server = this.#parts.server.until(signal);
    const both = <T>(work: (ours: Bench, theirs: Bench) => Promise<T>): Promise<T> =>
      withBench(this.#parts, into, oursId, signal, (ours) =>
        withBench(this.#parts, from, theirsId, signal, (theirs) => work(ours, theirs)),
      );
    return both(async (ours, theirs) => {
      const merged: MergedRepository[] = [];
      for (const { gitDir } of moved)
        merged.push(
          await new RepositoryMerge(
            { name: into.name, git: await BenchGit.open(ours, into, gitDir, signal) },
            { name: from.name, git: await BenchGit.open(theirs, from, gitDir, signal) },
            choices,
          ).run(),
        );
      const isOpen = merged.some(({ conflicts }) =>
        conflicts.some(({ path }) => sideOf(choices, path) === undefined),
      );
      if (isOpen) return merged;
      await ours.stop();
      const made = this.#ofDisk(into, ours.id);
      for (const { path } of merged) {
        const changes: TreeChange[] = [];
        for await (const change of diffTrees(server, trees.ours, made, { path, signal }))
          changes.push(change);
        await applyMerge(server, { changes, conflicts: [] }, made, new UpperWriter(server, tree));
      }
      return merged;
    });
  }

  #ofDisk(on: SandboxRecord, diskId: string): LayeredTree {
    const { disks, trees } = this.#parts;
    return { ...trees.ofImage(on.imageId), upperDir: join(disks.diskDir(diskId), 'upper') };
  }
}

/** What git looks after: the insides of repositories, what is tracked, and the directories that hold it. */
class GitPaths {
  readonly #gitDirs: readonly string[];
  readonly #tracked = new Set<string>();

  constructor(changed: readonly ChangedRepository[], merged: readonly MergedRepository[]) {
    this.#gitDirs = changed.map(({ gitDir }) => gitDir);
    for (const { path: top, tracked } of merged)
      for (const file of tracked)
        for (let path = file; path.length > top.length && !this.#tracked.has(path); path = above(path))
          this.#tracked.add(path);
  }

  has(path: string): boolean {
    return this.#tracked.has(path) || this.#gitDirs.some((gitDir) => isInternal(path, gitDir));
  }
}

const above = (path: string): string => path.slice(0, path.lastIndexOf('/'));
