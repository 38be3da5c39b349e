import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Coppice } from '@coppice/sdk';
import { HomeTraces } from './home-traces.ts';
import { tinyImage } from './tiny-image.ts';

export interface RunningDaemonOptions {
  /** What config.json says besides a free port and no warm pool. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Import the small image as `tiny` and make it the default; on unless told otherwise. */
  readonly image?: boolean;
  /** The bundle that people run, which must have been built; the sources unless told otherwise. */
  readonly bundle?: boolean;
  /** Fills the home before the daemon starts on it for the first time; it may replace config.json. */
  readonly prepare?: (home: string) => Promise<void>;
  /** A network namespace that the daemon takes for the machine's own. */
  readonly netns?: string;
  /** Programs that the small image has besides its own. */
  readonly programs?: readonly string[];
  /** Where its home is made; the temporary directory unless told otherwise. */
  readonly below?: string;
}

export interface StartOptions {
  readonly args?: readonly string[];
}

interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stderr: string;
}

const sources = fileURLToPath(new URL('../../daemon/src/main.ts', import.meta.url));
const bundled = fileURLToPath(new URL('../../../dist/daemon.mjs', import.meta.url));
/** Tests start many daemons; from the second on their sources are not compiled anew. */
const compileCache = fileURLToPath(new URL('../../../.tools/compile-cache', import.meta.url));
const startDeadlineMs = 60_000;
const leaveDeadlineMs = 30_000;
const pollMs = 10;

/** A real daemon process on a home of its own. `await using` purges it and fails when anything is left. */
export class RunningDaemon implements AsyncDisposable {
  readonly home: string;
  readonly traces: HomeTraces;
  readonly client: Coppice;
  readonly #command: readonly [string, ...string[]];
  #child: ChildProcess | undefined;
  #exit: Promise<Exit> | undefined;
  #record: { pid: number; url: string; socket: string } | undefined;

  private constructor(home: string, command: readonly [string, ...string[]]) {
    this.home = home;
    this.#command = command;
    this.traces = new HomeTraces(home);
    this.client = new Coppice({ home }, {});
  }

  static async start({
    config = {},
    image = true,
    bundle = false,
    prepare,
    below = tmpdir(),
    netns,
    programs = [],
  }: RunningDaemonOptions = {}): Promise<RunningDaemon> {
    const home = realpathSync(mkdtempSync(join(below, 'coppice-home-')));
    const settings = {
      listen: { port: 0 },
      warm_pool: 0,
      // A test that names an image that is not there must not ask a registry on the Internet.
      pull_missing_images: false,
      // Whether memory is kept must not depend on what set-up could get; tests of it say so (memory-drivers.ts).
      criu: '/nonexistent/criu',
      ...(image ? { default_image: 'tiny' } : {}),
      ...config,
    };
    writeFileSync(join(home, 'config.json'), JSON.stringify(settings));
    const program = bundle ? bundled : sources;
    const daemon = new RunningDaemon(
      home,
      netns === undefined
        ? [process.execPath, program]
        : ['nsenter', `--net=${netns}`, '--', process.execPath, program],
    );
    try {
      await prepare?.(home);
      await daemon.restart();
      if (image) await daemon.client.images.make({ name: 'tiny', source: await tinyImage(...programs) });
    } catch (error) {
      await daemon.purge();
      throw error;
    }
    return daemon;
  }

  get pid(): number {
    return this.#known.pid;
  }

  get url(): string {
    return this.#known.url;
  }

  get socket(): string {
    return this.#known.socket;
  }

  get token(): string {
    return readFileSync(join(this.home, 'token'), 'utf8').trim();
  }

  /** Settles when the process is gone, whoever ended it. */
  get exited(): Promise<Exit> {
    return this.#exit ?? Promise.reject(new Error('the daemon was not started'));
  }

  /** From now on the daemon dies at this kill point; until disarmed, the next one does too. */
  armKillPoint(point: string): void {
    this.#setFaults([point]);
  }

  /** From now on the daemon waits where it comes to one of these, and goes on from all others. */
  holdAt(...points: readonly string[]): void {
    this.#setFaults(points.map((point) => `hold ${point}`));
  }

  disarm(): void {
    rmSync(this.#faultFile, { force: true });
  }

  /** Starts it, after ending it in an orderly way where it runs; returns once it answers. */
  async restart(options: StartOptions = {}): Promise<void> {
    await this.stop();
    const { child, exit } = this.#spawn(options.args ?? []);
    this.#child = child;
    this.#exit = exit;
    let gone: Exit | undefined;
    void exit.then((result) => {
      gone = result;
    });
    const deadlineMs = Date.now() + startDeadlineMs;
    for (;;) {
      this.#record = this.#readRecord();
      if (this.#record?.pid === child.pid) return;
      if (gone !== undefined)
        throw new Error(`the daemon ended with ${gone.code ?? gone.signal}: ${gone.stderr}`);
      if (Date.now() > deadlineMs) throw new Error('the daemon did not start in time');
      await sleep(pollMs);
    }
  }

  /** Runs the program to its end, for calls that must fail or that do not serve. */
  async run(args: readonly string[]): Promise<Exit> {
    return this.#spawn(args).exit;
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<Exit> {
    const exit = this.exited;
    this.#child?.kill(signal);
    const result = await exit;
    this.#child = undefined;
    return result;
  }

  /** Orderly; sandboxes go on. */
  async stop(): Promise<void> {
    if (this.#child === undefined) return;
    const { code, signal, stderr } = await this.kill('SIGTERM');
    // One that had died before of a kill point is stopped too.
    if (code !== 0 && signal !== 'SIGKILL')
      throw new Error(`the daemon ended with ${code ?? signal}: ${stderr}`);
  }

  /** Removes everything of the home and says what is left: nothing, if all is well. */
  async purge(): Promise<string[]> {
    await this.stop();
    this.client.close();
    const { code, stderr } = await this.run(['--purge']);
    if (code !== 0) throw new Error(`the purge of ${this.home} failed: ${stderr}`);
    // Programs that a killed daemon had started end by themselves once they notice.
    const deadlineMs = Date.now() + leaveDeadlineMs;
    let left = this.traces.all();
    while (left.length > 0 && Date.now() < deadlineMs) {
      await sleep(pollMs);
      left = this.traces.all();
    }
    return left;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const left = await this.purge();
    if (left.length > 0) throw new Error(`the purge left behind: ${left.join(', ')}`);
  }

  get #known() {
    if (this.#record === undefined) throw new Error('the daemon was not started');
    return this.#record;
  }

  get #faultFile(): string {
    return join(this.home, 'faults');
  }

  /** Whole at each instant, as the daemon may just be reading it. */
  #setFaults(lines: readonly string[]): void {
    writeFileSync(`${this.#faultFile}.new`, lines.join('\n'));
    renameSync(`${this.#faultFile}.new`, this.#faultFile);
  }

  #spawn(args: readonly string[]): { child: ChildProcess; exit: Promise<Exit> } {
    const { COPPICE_HOME: _, ...env } = process.env;
    const [command, ...before] = this.#command;
    const child = spawn(command, [...before, '--home', this.home, ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...env, COPPICE_FAULTS: this.#faultFile, NODE_COMPILE_CACHE: compileCache },
    });
    let stderr = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    // `exit`, not `close`: a program that the daemon started may hold the pipe for a moment longer.
    const exit = once(child, 'exit').then(([code, signal]) => ({ code, signal, stderr }) as Exit);
    return { child, exit };
  }

  #readRecord(): { pid: number; url: string; socket: string } | undefined {
    try {
      return JSON.parse(readFileSync(join(this.home, 'daemon.json'), 'utf8'));
    } catch {
      return undefined;
    }
  }
}
