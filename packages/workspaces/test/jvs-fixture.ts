import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { guestProgram, PlainDirectory } from '@coppice/testkit';
import { vi } from 'vitest';
import { bundleJvs } from '../../../scripts/bundle-jvs.ts';

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface RunOptions {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly input?: string;
  readonly uid?: number;
  readonly gid?: number;
  readonly started?: (child: ChildProcess) => void;
}

/** A directory of its own with a real `jvs` on its PATH, bundled as it is for people. */
export class JvsFixture implements AsyncDisposable {
  readonly home: string;
  readonly bin: string;
  readonly work: string;

  readonly #directory: PlainDirectory;

  private constructor(directory: PlainDirectory) {
    this.#directory = directory;
    this.home = directory.path;
    const { home } = this;
    this.bin = join(home, 'bin');
    this.work = join(home, 'work');
  }

  static async create(): Promise<JvsFixture> {
    const fixture = new JvsFixture(await PlainDirectory.make('jvs-test-'));
    await mkdir(fixture.bin);
    await mkdir(fixture.work);
    await bundleJvs(join(fixture.home, 'program'));
    await fixture.program(
      'jvs',
      `exec "$COPPICE_TREE_PROGRAM" jvs ${JSON.stringify(process.execPath)} ${JSON.stringify(join(fixture.home, 'program/jvs.mjs'))} "$@"`,
    );
    return fixture;
  }

  get env(): Record<string, string> {
    return {
      PATH: `${this.bin}:${process.env.PATH ?? ''}`,
      HOME: this.home,
      COPPICE_TREE_PROGRAM: process.env.COPPICE_TREE_PROGRAM ?? guestProgram('coppice-tree'),
      LC_ALL: 'C.UTF-8',
    };
  }

  /** A small program on the PATH, in bash. */
  async program(name: string, script: string): Promise<void> {
    const path = join(this.bin, name);
    await writeFile(path, `#!/usr/bin/env bash\n${script}\n`);
    await chmod(path, 0o755);
  }

  run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Ended> {
    return new Promise((resolve, reject) => {
      const child = spawn(command, args, {
        cwd: options.cwd ?? this.work,
        env: { ...this.env, ...options.env },
        stdio: ['pipe', 'pipe', 'pipe'],
        ...(options.uid === undefined ? {} : { uid: options.uid }),
        ...(options.gid === undefined ? {} : { gid: options.gid }),
      });
      options.started?.(child);
      let stdout = '';
      let stderr = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        stdout += text;
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        stderr += text;
      });
      child.on('error', reject);
      child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
      child.stdin.on('error', () => undefined);
      child.stdin.end(options.input ?? '');
    });
  }

  /** A program that waits at one of its points while something else is done. */
  async runStopped(
    point: string,
    command: readonly [string, ...string[]],
    options: RunOptions,
    meanwhile: () => Promise<void>,
  ): Promise<Ended> {
    const [program, ...args] = command;
    const { promise: stopped, resolve: seen } = Promise.withResolvers<ChildProcess>();
    const ended = this.run(program, args, {
      ...options,
      env: { ...options.env, JVS_STOP_AT: point },
      started: seen,
    });
    const child = await stopped;
    try {
      await vi.waitFor(async () => {
        const state = /\) (\w)/.exec(await readFile(`/proc/${child.pid}/stat`, 'utf8'))?.[1];
        if (state !== 'T') throw new Error(`it is not at ${point}, but ${state}`);
      }, 60_000);
      await meanwhile();
    } finally {
      child.kill('SIGCONT');
    }
    return ended;
  }

  /** In a process of its own, as people start it. */
  jvs(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
    return this.run(join(this.bin, 'jvs'), args, options);
  }

  /** Expects success; answers the output. */
  async ok(args: readonly string[], options: RunOptions = {}): Promise<string> {
    const ended = await this.jvs(args, options);
    if (ended.code !== 0)
      throw new Error(`jvs ${args.join(' ')} ended with ${ended.code}: ${ended.stderr}${ended.stdout}`);
    return ended.stdout;
  }

  async json<Answer>(args: readonly string[], options: RunOptions = {}): Promise<Answer> {
    return JSON.parse(await this.ok([...args, '--json'], options)) as Answer;
  }

  /** A fresh workspace; answers the directory of its first worktree. */
  async workspace(name: string, args: readonly string[] = []): Promise<string> {
    await this.ok(['init', name, ...args]);
    return join(this.work, name, 'main');
  }

  bash(script: string, options: RunOptions = {}): Promise<Ended> {
    return this.run('bash', ['--norc', '-euo', 'pipefail', '-c', script], options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#directory[Symbol.asyncDispose]();
  }
}

export const readText = (path: string): Promise<string> => readFile(path, 'utf8');

const describeDirectory = `
tar --sort=name --format=posix --pax-option=delete=atime,delete=ctime,exthdr.name=%d/%f --numeric-owner -cf - . | sha256sum
getfattr -Rh -d -m - -e hex . 2> /dev/null | awk '/^# file: /{file=$0; next} NF {print file, $0}' | LC_ALL=C sort | sha256sum`;

/** Everything about a directory that other programs see, times to the nanosecond, attributes and ACLs, as two digests. */
export const digestOf = (directory: string): Promise<string> =>
  new Promise((resolve, reject) => {
    execFile(
      'bash',
      ['--norc', '-euo', 'pipefail', '-c', describeDirectory],
      { cwd: directory },
      (error, stdout) => (error ? reject(error) : resolve(stdout)),
    );
  });
