import {
  CoppiceError,
  createSandboxSchema,
  createSnapshotSchema,
  defaultProject,
  execSchema,
  gitCloneSchema,
  goldenName,
  type PreparedSandbox,
  type prepareSandboxSchema,
  type Sandbox,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { GitService } from '../git/git-service.ts';
import { inShell } from '../inside/shell-command.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import type { CallOptions, Services } from '../services.ts';
import { ownerOf } from '../sessions/sessions.ts';

type PrepareInput = z.output<typeof prepareSandboxSchema>;

export interface PrepareParts {
  readonly sandboxes: Pick<Services['sandboxes'], 'find' | 'get' | 'create' | 'destroy'>;
  readonly snapshots: Pick<Services['snapshots'], 'list' | 'create' | 'get'>;
  readonly exec: Services['exec'];
  readonly git: GitService;
}

/** As much of the output of a command that failed as the error tells. */
const outputBytes = 65_536;

/** Makes sandboxes that others are forked from: created, set up and snapshotted in one call. */
export class PrepareService {
  readonly #parts: PrepareParts;
  /** By project and name: a second call waits for the first, and answers with what that one made. */
  readonly #preparing = new KeyedLock();

  constructor(parts: PrepareParts) {
    this.#parts = parts;
  }

  prepare(input: PrepareInput, options: CallOptions = {}): Promise<PreparedSandbox> {
    const ref = `${input.project ?? defaultProject}/${input.name}`;
    return this.#preparing.exclusive(ref, async () => {
      options.signal?.throwIfAborted();
      return (await this.#parts.sandboxes.find(ref)) === undefined
        ? this.#build(input, options)
        : this.#existing(await this.#parts.sandboxes.get(ref), options);
    });
  }

  async #existing(sandbox: Sandbox, { session }: CallOptions): Promise<PreparedSandbox> {
    if (session !== undefined && ownerOf(sandbox) !== session)
      throw new CoppiceError('forbidden', `sandbox ${sandbox.name} belongs to another session`, {
        hint: 'Choose another name, or take it over first.',
      });
    const snapshots = await this.#parts.snapshots.list({ sandbox: sandbox.id });
    const snapshot = snapshots.find(({ name }) => name === goldenName);
    if (snapshot === undefined)
      throw new CoppiceError('name_taken', `${sandbox.name} exists and has no snapshot ${goldenName}`, {
        hint: `Choose another name, or take a snapshot of it named ${goldenName}.`,
      });
    return { sandbox, snapshot, reused: true };
  }

  async #build(input: PrepareInput, options: CallOptions): Promise<PreparedSandbox> {
    const { sandboxes, snapshots } = this.#parts;
    const { signal, progress } = options;
    const body = createSandboxSchema.parse({
      name: input.name,
      project: input.project,
      image: input.image,
      network: { allow_internet: input.allow_internet },
    });
    const { token: _, ...sandbox } = await sandboxes.create(body, options);
    try {
      if (input.git_url !== undefined) {
        progress?.({ message: 'cloning' });
        const clone = gitCloneSchema.parse({ url: input.git_url, timeout_ms: input.timeout_ms });
        await this.#parts.git.clone(sandbox.id, clone, options);
      }
      for (const command of input.commands) {
        progress?.({ message: `running ${command.slice(0, 80)}` });
        await this.#run(sandbox.id, command, input.timeout_ms, signal);
      }
      signal?.throwIfAborted();
      const taken = await snapshots.create(sandbox.id, createSnapshotSchema.parse({ name: goldenName }));
      return { sandbox, snapshot: await snapshots.get(taken.id), reused: false };
    } catch (error) {
      // A half-prepared sandbox would keep its name from the next try.
      await sandboxes.destroy(sandbox.id);
      throw error;
    }
  }

  async #run(id: string, command: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    const done = await inShell(command, undefined, (words) =>
      this.#parts.exec.run(
        id,
        execSchema.parse({ ...words, timeout_ms: timeoutMs, max_output_bytes: outputBytes }),
        signal,
      ),
    );
    const details = { stdout: done.stdout, stderr: done.stderr };
    if (done.timed_out)
      throw new CoppiceError('timeout', `the command timed out after ${timeoutMs / 1000} s: ${command}`, {
        hint: 'Allow each command more time. The sandbox was removed, so the next call starts afresh.',
        details,
      });
    if (done.exit_code === 0) return;
    const how = done.exit_code === null ? `signal ${done.signal}` : `exit code ${done.exit_code}`;
    throw new CoppiceError('conflict', `the command ended with ${how}: ${command}`, {
      hint: 'Correct the command and prepare it again. The sandbox was removed.',
      details,
    });
  }
}
