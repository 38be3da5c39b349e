import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import {
  type LayoutImage,
  RunningDaemon,
  skopeoCopy,
  TestRegistry,
  tinyImage,
  writeOciLayout,
} from '@coppice/testkit';

export const run = promisify(execFile);
const cli = join(import.meta.dirname, '../../packages/cli/src/main.ts');

export const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
  work.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
  );

/** A daemon, a registry, and a directory for what other tools make. */
export class ImageBench {
  readonly registry: TestRegistry;
  readonly daemon: RunningDaemon;
  readonly directory: string;
  /** A root filesystem with a shell, as the lowest layer. */
  readonly shell: Buffer;

  private constructor(registry: TestRegistry, daemon: RunningDaemon, directory: string, shell: Buffer) {
    this.registry = registry;
    this.daemon = daemon;
    this.directory = directory;
    this.shell = shell;
  }

  static async open(): Promise<ImageBench> {
    const { stdout: shell } = await run(
      'tar',
      ['-C', await tinyImage(), '--numeric-owner', '-cf', '-', '.'],
      { encoding: 'buffer', maxBuffer: 1 << 28 },
    );
    const [registry, daemon, directory] = await Promise.all([
      TestRegistry.start(),
      RunningDaemon.start({ image: false, config: { pull_missing_images: true } }),
      mkdtemp(join(tmpdir(), 'coppice-e2e-images-')),
    ]);
    return new ImageBench(registry, daemon, directory, shell);
  }

  get client(): RunningDaemon['client'] {
    return this.daemon.client;
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  /** Writes an image as other tools do; returns where, for `skopeo` and `umoci`. */
  async layout(name: string, image: LayoutImage): Promise<string> {
    const layout = this.path(name.replace(/\W/g, '-'));
    await rm(layout, { recursive: true, force: true });
    await writeOciLayout(layout, 'x', image);
    return `${layout}:x`;
  }

  /** Puts an image into the registry; returns the name to pull it by. */
  async put(name: string, image: LayoutImage): Promise<string> {
    await skopeoCopy(`oci:${await this.layout(name, image)}`, `docker://${this.registry.host}/${name}`);
    return `${this.registry.host}/${name}`;
  }

  async coppice(...argv: string[]): Promise<string> {
    return (await run(process.execPath, [cli, '--home', this.daemon.home, ...argv])).stdout.trim();
  }

  /** The same with a file as standard input. */
  async coppiceReading(file: string, ...argv: string[]): Promise<string> {
    const running = run(process.execPath, [cli, '--home', this.daemon.home, ...argv]);
    await pipeline(createReadStream(file), running.child.stdin!);
    return (await running).stdout.trim();
  }

  /** Names of everything that layers and packed layers take up. */
  async kept(): Promise<string[]> {
    const names = await Promise.all(
      ['layers', 'blobs'].map((name) => readdir(join(this.daemon.home, name)).catch(() => [])),
    );
    return names.flat().sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.daemon[Symbol.asyncDispose]();
    } finally {
      await this.registry[Symbol.asyncDispose]();
      await rm(this.directory, { recursive: true, force: true });
    }
  }
}

/** What a sandbox has of its own at these places. */
const own = ['dev', 'proc', 'sys', 'run', 'tmp', 'workspace', 'etc/hosts', 'etc/resolv.conf', 'etc/hostname'];

const listing = (root: string): string =>
  `cd ${root} && find . -xdev \\( ${own.map((path) => `-path ./${path}`).join(' -o ')} \\) -prune -o ` +
  `\\( -type d -printf '%P d %m %U:%G\\n' \\) -o -printf '%P %y %m %U:%G %s %l %n %TY-%Tm-%Td %TT\\n' | sort`;

/** Without the root itself: its owner is that of the sandbox's own disk. */
const lines = (text: string): string[] => text.split('\n').filter((line) => !line.startsWith(' d '));

/** Every entry with its type, mode, owners, size, target, number of names and time. */
export const entriesInside = async (sandbox: Sandbox): Promise<string[]> =>
  lines((await sandbox.exec(listing('/'), { max_output_bytes: 1 << 26 })).stdout);

export const entriesOf = async (directory: string): Promise<string[]> =>
  lines((await run('sh', ['-c', listing(directory)], { maxBuffer: 1 << 26 })).stdout);
