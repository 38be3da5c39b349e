import { existsSync } from 'node:fs';
import { readdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { Cover } from '../../driver.ts';
import { runProgram } from '../../programs/run-program.ts';
import type { Bounds } from '../../programs/unless-given-up.ts';
import { agentInside } from './oci-bundle.ts';

/** For what takes milliseconds on a machine at rest. */
const commandMs = 60_000;
const deleteMs = 20_000;

const fullBelowBytes = 32 * 1024 * 1024;

/** Some of what runsc writes fails on a full disk without saying so, with whatever error comes next. */
const isFull = async (directory: string): Promise<boolean> => {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize < fullBelowBytes;
};

/** What runsc keeps of a sandbox, removed without it. */
export const forgetState = async (stateDir: string, id: string): Promise<void> => {
  if (!existsSync(stateDir)) return;
  for (const name of await readdir(stateDir))
    if (name.startsWith(`${id}_`) || name === `runsc-${id}.sock`)
      await rm(join(stateDir, name), { recursive: true, force: true });
};

/** The commands of runsc for the sandboxes of one home. */
export class Runsc {
  readonly #program: string;
  readonly #stateDir: string;
  readonly #platform: string;

  constructor(program: string, stateDir: string, platform: string) {
    this.#program = program;
    this.#stateDir = stateDir;
    this.#platform = platform;
  }

  /** Starts what the bundle says; returns once PID 1 runs. Links of its network are taken after the hook of the bundle. */
  startCommand(id: string, bundleDir: string): string[] {
    return this.#command('run', '--detach', '--bundle', bundleDir, id);
  }

  /** Brings back what a checkpoint kept, likewise; returns once it runs. */
  restoreCommand(id: string, bundleDir: string, imageDir: string): string[] {
    return this.#command('restore', '--detach', '--bundle', bundleDir, '--image-path', imageDir, id);
  }

  async pause(id: string, signal?: AbortSignal): Promise<void> {
    await runProgram(this.#command('pause', id), { signal, deadlineMs: commandMs });
  }

  async resume(id: string): Promise<void> {
    await runProgram(this.#command('resume', id), { deadlineMs: commandMs });
  }

  /** Lets a sandbox go on that may or may not stand still. */
  async resumeIfPaused(id: string, deadlineMs = commandMs): Promise<void> {
    await runProgram(this.#command('resume', id), { accept: [128], deadlineMs });
  }

  /** By the agent's program, as a process of its own: nothing else inside may mount. */
  async cover(id: string, covers: readonly Cover[]): Promise<void> {
    const pairs = covers.flatMap(({ file, place }) => [file, place]);
    const command = this.#command('exec', '--cap', 'CAP_SYS_ADMIN', id, agentInside, '--cover', ...pairs);
    await runProgram(command, { deadlineMs: commandMs });
  }

  /** The sandbox goes on afterwards. Not compressed: that costs more time than it saves, and clones share plain pages. */
  async checkpoint(
    id: string,
    imageDir: string,
    { signal, deadlineMs, onStarted }: Bounds & { readonly onStarted: (pid: number) => void },
  ): Promise<void> {
    const options = ['--leave-running', '--compression=none', '--image-path', imageDir];
    const command = this.#command('checkpoint', ...options, id);
    const { exitCode, stderr } = await runProgram(command, {
      accept: [128],
      signal,
      onStarted,
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
    });
    if (exitCode === 0) return;
    if (/no space left|disk quota exceeded/i.test(stderr) || (await isFull(imageDir))) {
      throw new CoppiceError('no_space', `there is no room for the memory of sandbox ${id}`, {
        hint: 'Delete snapshots and sandboxes that are no longer needed, or give the home a larger disk.',
      });
    }
    const connection = /cannot be saved in connected state: (local \S+, remote [^:\s]+:\d+)/.exec(
      stderr,
    )?.[1];
    if (connection !== undefined) {
      throw new CoppiceError(
        'unsupported',
        `sandbox ${id} holds a TCP connection that leaves it, which gVisor cannot keep: ${connection}`,
        { hint: 'The sandbox goes on. Try again when the connection is closed.' },
      );
    }
    throw new CoppiceError('internal', `the memory of sandbox ${id} was not written: ${stderr.trim()}`);
  }

  /**
   * Forgets a sandbox whose processes have ended; one that is not known is no failure. Where runsc does not do it in time, its files
   * are removed for it: nothing else is left of a sandbox whose cgroup, mounts and network are not runsc's.
   */
  async delete(id: string): Promise<void> {
    try {
      await runProgram(this.#command('delete', '--force', id), { accept: [128], deadlineMs: deleteMs });
    } catch (error) {
      if (!(error instanceof CoppiceError) || error.code !== 'timeout') throw error;
      await forgetState(this.#stateDir, id);
    }
  }

  #command(verb: string, ...args: string[]): [string, ...string[]] {
    return [
      this.#program,
      '--root',
      this.#stateDir,
      `--platform=${this.#platform}`,
      '--network=sandbox',
      '--overlay2=none',
      '--file-access=shared',
      // Its kernel then runs as nobody and asks its file server for every file, instead of opening them as root.
      '--directfs=false',
      // What the bundle says about system calls counts.
      '--oci-seccomp',
      // The relay stands in the sandbox's cgroup already, and what it starts is born there.
      '--ignore-cgroups',
      verb,
      ...args,
    ];
  }
}
