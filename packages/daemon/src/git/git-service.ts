import {
  execSchema,
  type GitStatus,
  type gitStatusQuery,
  type MergedCommits,
  type mergeCommitsSchema,
  type Sandbox,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { ExecService } from '../inside/exec-service.ts';
import type { FileService } from '../inside/file-service.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import type { CallOptions } from '../services.ts';
import { GitMerge, type MergePlace } from './git-merge.ts';
import { GitRepository } from './git-repository.ts';
import { parseStatus, statusArguments } from './git-status.ts';

export interface GitServiceParts {
  readonly exec: ExecService;
  readonly files: FileService;
  readonly peek: (ref: string) => Sandbox;
}

/** Repositories inside sandboxes: how they are, and commits that go from one to another. */
export class GitService {
  readonly #parts: GitServiceParts;
  /** One merge into a sandbox at a time. */
  readonly #merging = new KeyedLock();

  constructor(parts: GitServiceParts) {
    this.#parts = parts;
  }

  async status(
    ref: string,
    { path }: z.output<typeof gitStatusQuery>,
    { signal }: CallOptions = {},
  ): Promise<GitStatus> {
    return parseStatus(await this.#repository(ref, path, signal).run(statusArguments));
  }

  /** Conflicts are an answer; they leave the target as it was, or without the commits that are named. */
  async merge(
    into: string,
    { from, strategy, message, path }: z.output<typeof mergeCommitsSchema>,
    { signal, progress }: CallOptions = {},
  ): Promise<MergedCommits> {
    const target = this.#place(into, path, signal);
    const sources = from.map((ref) => this.#place(ref, path, signal));
    return this.#merging.exclusive(target.id, async () => {
      const merge = new GitMerge(target);
      await merge.assertReady();
      const merged: MergedCommits['sources'] = [];
      const conflicts: MergedCommits['conflicts'] = [];
      for (const [index, source] of sources.entries()) {
        signal?.throwIfAborted();
        progress?.({ message: `merging ${source.name}`, fraction: index / sources.length });
        const outcome = await merge.bringIn(source, strategy, message);
        if (outcome.merged !== undefined) merged.push(outcome.merged);
        conflicts.push(...outcome.conflicts);
      }
      return {
        success: conflicts.length === 0,
        strategy,
        commits: merged.reduce((sum, source) => sum + source.commits, 0),
        sources: merged,
        conflicts,
      };
    });
  }

  #repository(ref: string, path: string, signal: AbortSignal | undefined): GitRepository {
    const { exec } = this.#parts;
    return new GitRepository((command) => exec.run(ref, execSchema.parse(command), signal), path);
  }

  #place(ref: string, path: string, signal: AbortSignal | undefined): MergePlace {
    const { files, peek } = this.#parts;
    const { id, name } = peek(ref);
    return {
      id,
      name,
      git: this.#repository(id, path, signal),
      read: async (file) => (await files.read(id, file, {})).bytes,
      write: (file, bytes) => files.write(id, { path: file, parents: false }, bytes),
      remove: (file) => files.remove(id, file, false),
    };
  }
}
