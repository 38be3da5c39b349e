import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { BareRepository } from '@coppice/forge';
import {
  CoppiceError,
  type CreateSandbox,
  createSandboxSchema,
  execSchema,
  type Sandbox,
  workDirectory,
} from '@coppice/protocol';
import type { BranchRecord } from '../db/branch-table.ts';
import { GitRepository } from '../git/git-repository.ts';
import type { ExecService } from '../inside/exec-service.ts';
import type { FileService } from '../inside/file-service.ts';

export interface BranchSandboxParts {
  readonly exec: ExecService;
  readonly files: FileService;
  readonly sandboxes: {
    find(ref: string): unknown;
    peek(ref: string): Sandbox;
    create(input: CreateSandbox, options?: { readonly by: 'admin' }): Promise<{ readonly id: string }>;
  };
  /** Where files from sandboxes lie while git looks at them. */
  readonly directory: string;
  readonly maxBytes: number;
  readonly maxRepositoryBytes: number;
}

const branchLabel = 'coppice.branch';
const identity = {
  GIT_AUTHOR_NAME: 'Coppice agent',
  GIT_AUTHOR_EMAIL: 'agent@coppice.invalid',
  GIT_COMMITTER_NAME: 'Coppice agent',
  GIT_COMMITTER_EMAIL: 'agent@coppice.invalid',
};
const patient = { timeoutSecs: 600 };

/**
 * The sandbox in which a branch is worked on. Commits go in and out as files, so the sandbox needs no network and no login: what it
 * may change at the forge is the one branch that is taken out of it.
 */
export class BranchSandbox {
  readonly #parts: BranchSandboxParts;

  constructor(parts: BranchSandboxParts) {
    this.#parts = parts;
  }

  /** The one that is there, or a new one. */
  async make({ repositoryId, branch, spec }: BranchRecord): Promise<string> {
    const { sandboxes } = this.#parts;
    const mine = `${repositoryId}:${branch}`;
    const plain = `${spec.repository}-${branch}`.replace(/[^A-Za-z0-9_.-]+/g, '-').slice(0, 56);
    for (let n = 1; n <= 100; n += 1) {
      const name = n === 1 ? plain : `${plain}-${n}`;
      if (sandboxes.find(name) !== undefined) {
        const found = sandboxes.peek(name);
        if (found.labels[branchLabel] === mine) return found.id;
        continue;
      }
      const input = {
        name,
        labels: { [branchLabel]: mine },
        ...(spec.image === undefined ? {} : { image: spec.image }),
        ...(spec.network === undefined ? {} : { network: spec.network }),
      };
      return (await sandboxes.create(createSandboxSchema.parse(input), { by: 'admin' })).id;
    }
    throw new CoppiceError('name_taken', `${plain} and 99 more names like it are taken`);
  }

  /** The branch checked out in /workspace, once; what was done there since stays. */
  async checkOut(
    sandboxId: string,
    repository: BareRepository,
    { branch, base }: BranchRecord,
  ): Promise<void> {
    const git = this.#git(sandboxId);
    const ref = `refs/heads/${branch}`;
    if ((await git.try(['rev-parse', '--verify', '--quiet', ref])).exitCode === 0) return;
    const file = temporaryName();
    await this.#parts.files.write(
      sandboxId,
      { path: file, parents: false },
      repository.bundle([...new Set([branch, base])]),
    );
    try {
      await git.run(['init', '--quiet', '.']);
      await git.run(['fetch', '--quiet', '--no-tags', file, '+refs/heads/*:refs/remotes/origin/*'], patient);
      await git.run(['checkout', '--quiet', '-B', branch, `refs/remotes/origin/${branch}`], patient);
    } finally {
      await this.#remove(sandboxId, file);
    }
  }

  /** Commits what is not committed yet, and says the last commit of the branch. */
  async commitAll(sandboxId: string, { branch }: BranchRecord, message: string): Promise<string> {
    const git = this.#git(sandboxId);
    const at = await git.run(['symbolic-ref', '--quiet', '--short', 'HEAD']).catch(() => '');
    if (at !== branch)
      throw new CoppiceError(
        'wrong_state',
        `${workDirectory} is on ${at === '' ? 'no branch' : at} and not on ${branch}`,
        {
          hint: `Switch back in the sandbox: git switch ${branch}`,
        },
      );
    if ((await git.run(['status', '--porcelain', '--untracked-files=normal'])) !== '') {
      await git.run(['add', '--all'], patient);
      await git.run(['commit', '--quiet', '--no-verify', '-m', message], { ...patient, env: identity });
    }
    const sha = await git.run(['rev-parse', '--verify', `refs/heads/${branch}`]);
    if (!/^[0-9a-f]{40}$/.test(sha))
      throw new CoppiceError('corrupt', `the sandbox names no commit of ${branch}`);
    return sha;
  }

  /** The commits that the forge lacks, into its repository; no branch moves there yet. */
  async bringOut(
    sandboxId: string,
    repository: BareRepository,
    { branch }: BranchRecord,
    have: string,
  ): Promise<string> {
    await repository.assertRoom(this.#parts.maxRepositoryBytes);
    const file = temporaryName();
    const place = await mkdtemp(join(this.#parts.directory, 'incoming-'));
    try {
      await this.#git(sandboxId).run(
        ['bundle', 'create', '--quiet', file, `refs/heads/${branch}`, '--not', have],
        patient,
      );
      const { bytes } = await this.#parts.files.read(sandboxId, file, {});
      const target = join(place, 'bundle');
      await pipeline(
        Readable.from(bounded(bytes, this.#parts.maxBytes)),
        createWriteStream(target, { mode: 0o600 }),
      );
      return await repository.takeIn(target, branch);
    } finally {
      await rm(place, { recursive: true, force: true });
      await this.#remove(sandboxId, file);
    }
  }

  #git(sandboxId: string): GitRepository {
    return new GitRepository(
      (command) => this.#parts.exec.run(sandboxId, execSchema.parse(command)),
      workDirectory,
    );
  }

  async #remove(sandboxId: string, file: string): Promise<void> {
    await this.#parts.files.remove(sandboxId, file, false).catch((error: unknown) => {
      if (!(error instanceof CoppiceError)) throw error;
    });
  }
}

const temporaryName = (): string => `/tmp/coppice-branch-${randomBytes(6).toString('hex')}.bundle`;

async function* bounded(bytes: AsyncIterable<Uint8Array>, limit: number): AsyncGenerator<Uint8Array> {
  let total = 0;
  for await (const chunk of bytes) {
    total += chunk.length;
    if (total > limit)
      throw new CoppiceError('too_large', `the commits of the sandbox take more than ${limit} bytes`, {
        hint: 'Leave large files out of them, or raise `limits.forge_push_mb` in config.json.',
      });
    yield chunk;
  }
}
