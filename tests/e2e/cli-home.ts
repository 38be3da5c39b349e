import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { eventually, HomeTraces, tinyImage } from '@coppice/testkit';

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly bytes: Buffer;
}

interface RunOptions {
  readonly input?: string | Buffer;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
}

/** A program and its first words. */
type Command = readonly [string, ...string[]];

/** `coppice` as it runs from its sources. */
const sources: Command = [process.execPath, join(import.meta.dirname, '../../packages/cli/src/main.ts')];

/** A home of its own with the real command and the real daemon, taken away whole at the end. */
export class CliHome {
  /** A directory for the test's own files; the home is in it. */
  readonly directory: string;
  readonly home: string;
  readonly #command: Command;

  private constructor(directory: string, command: Command) {
    this.directory = directory;
    this.home = join(directory, 'home');
    this.#command = command;
  }

  /** Without a daemon yet; what it will create comes from the image `host`, as for anyone who starts afresh. */
  static async make(
    config: Readonly<Record<string, unknown>> = {},
    command: Command = sources,
  ): Promise<CliHome> {
    const made = new CliHome(await realpath(await mkdtemp(join(tmpdir(), 'coppice-cli-'))), command);
    await mkdir(made.home);
    await writeFile(
      join(made.home, 'config.json'),
      JSON.stringify({
        listen: { port: 0 },
        warm_pool: 0,
        pull_missing_images: false,
        criu: '/nonexistent/criu',
        ...config,
      }),
    );
    await mkdir(join(made.directory, 'bin'));
    const onPath = join(made.directory, 'bin/coppice');
    await writeFile(onPath, `#!/bin/sh\nexec ${command.map((word) => `'${word}'`).join(' ')} "$@"\n`);
    await chmod(onPath, 0o755);
    return made;
  }

  /** With a daemon that runs, and a small image as the default, which is made much sooner than `host`; `programs` are in it too. */
  static async start(command: Command = sources, programs: readonly string[] = []): Promise<CliHome> {
    const made = await CliHome.make({ default_image: 'tiny' }, command);
    try {
      await made.ok('up', '--detach');
      await made.ok('images', 'import', await tinyImage(...programs), 'tiny');
    } catch (error) {
      await made.remove();
      throw error;
    }
    return made;
  }

  /** Runs `coppice …` to its end. */
  run(argv: readonly string[], options: RunOptions = {}): Promise<CliResult> {
    const [file, ...words] = this.#command;
    return this.spawn(file, [...words, ...argv], options);
  }

  /** Starts `coppice …` to talk with while it runs. */
  begin(argv: readonly string[]): BegunCommand {
    const [file, ...words] = this.#command;
    return new BegunCommand(
      spawn(file, [...words, ...argv], {
        cwd: this.directory,
        env: this.#environment(),
        stdio: ['pipe', 'pipe', 'pipe'],
      }),
    );
  }

  /** Runs a script in a shell that finds the command on its path. */
  async spawn(
    file: string,
    argv: readonly string[],
    { input, cwd, env }: RunOptions = {},
  ): Promise<CliResult> {
    const child = spawn(file, argv, {
      cwd: cwd ?? this.directory,
      env: { ...this.#environment(), ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    // A command may end without reading its input.
    child.stdin.on('error', () => undefined);
    child.stdin.end(input ?? '');
    const [bytes, stderr, [code]] = await Promise.all([
      buffer(child.stdout),
      buffer(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ]);
    return { code, bytes, stdout: bytes.toString(), stderr: stderr.toString() };
  }

  /** Runs a command that must succeed; returns what it printed, trimmed. */
  async ok(...argv: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.run(argv);
    if (code !== 0) throw new Error(`coppice ${argv.join(' ')} ended with ${code}:\n${stdout}${stderr}`);
    return stdout.trim();
  }

  async json<T = Record<string, unknown>>(...argv: string[]): Promise<T> {
    return JSON.parse(await this.ok('--json', ...argv)) as T;
  }

  async remove(): Promise<void> {
    try {
      await this.ok('down', '--purge', '--yes');
      const traces = new HomeTraces(this.home);
      await eventually(`nothing is left of ${this.home}`, () => traces.all().length === 0);
    } finally {
      await rm(this.directory, { recursive: true, force: true });
    }
  }

  #environment(): NodeJS.ProcessEnv {
    const { COPPICE_URL: _url, COPPICE_TOKEN: _token, FORCE_COLOR: _colour, ...inherited } = process.env;
    return { ...inherited, COPPICE_HOME: this.home };
  }
}

class BegunCommand {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<number | null>;
  #said = '';

  constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    this.ended = once(child, 'close').then(([code]) => code as number | null);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#said += text;
      });
    }
  }

  /** All that it said, on both streams. */
  get said(): string {
    return this.#said;
  }

  type(text: string): void {
    this.#child.stdin.write(text);
  }

  untilSays(text: string): Promise<void> {
    return eventually(`the command says ${text}`, () => this.#said.includes(text));
  }

  interrupt(): void {
    this.#child.kill('SIGINT');
  }

  /** Sends a signal once the command talks to the daemon; before that any signal ends it, as it does every program. */
  async signal(signal: NodeJS.Signals): Promise<void> {
    const descriptors = `/proc/${this.#child.pid}/fd`;
    const isConnected = (): boolean =>
      readdirSync(descriptors).some((name) => {
        try {
          return Number(name) > 2 && readlinkSync(join(descriptors, name)).startsWith('socket:');
        } catch {
          return false; // It was closed meanwhile.
        }
      });
    await eventually('the command talks to the daemon', isConnected);
    this.#child.kill(signal);
  }
}
