import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '@coppice/testkit';
import type { BenchContext } from '../harness/bench-context.ts';
import { NotMeasured } from '../harness/row.ts';
import { holdMemoryCommand, readyFile } from './memory-holder.ts';
import type { PeerRoot } from './peer-root.ts';

const run = promisify(execFile);

/**
 * runsc by hand, as Coppice calls it. Without a network: in the machine's own namespace it would take the addresses off
 * the machine's links.
 */
export class BareRunsc {
  readonly #context: BenchContext;
  readonly #root: PeerRoot;
  readonly #command: readonly [string, ...string[]];
  readonly #bundle: string;

  private constructor(context: BenchContext, root: PeerRoot) {
    this.#context = context;
    this.#root = root;
    this.#bundle = join(context.directory, 'runsc-bundle');
    this.#command = [
      ...(['runsc', '--root', join(context.directory, 'runsc')] as const),
      ...['--network=none', '--platform=systrap', '--overlay2=none', '--file-access=shared'],
      ...['--directfs=false', '--ignore-cgroups'],
    ];
  }

  static async make(context: BenchContext): Promise<BareRunsc> {
    if (!existsSync('/usr/bin/runsc') && !existsSync('/usr/local/bin/runsc')) {
      throw new NotMeasured('runsc is not installed');
    }
    return new BareRunsc(context, await context.peerRoot('runsc-root'));
  }

  /** A sandbox with a process that holds this much memory; its id. */
  async startHolder(sizeMb: number): Promise<string> {
    mkdirSync(this.#bundle);
    const config = {
      ociVersion: '1.0.2',
      process: {
        user: { uid: 0, gid: 0 },
        args: ['/bin/bash', '-c', holdMemoryCommand(sizeMb)],
        env: ['PATH=/usr/bin:/bin'],
        cwd: '/',
      },
      root: { path: this.#root.path },
      mounts: [
        { destination: '/proc', type: 'proc', source: 'proc' },
        { destination: '/tmp', type: 'bind', source: join(this.#root.path, 'tmp'), options: ['bind', 'rw'] },
      ],
      linux: { namespaces: ['pid', 'ipc', 'uts', 'mount', 'network'].map((type) => ({ type })) },
    };
    writeFileSync(join(this.#bundle, 'config.json'), JSON.stringify(config));
    await this.#context.shell.time([...this.#command, 'run', '--detach', '--bundle', this.#bundle, 'holder']);
    this.#context.atEnd(() => this.remove('holder'));
    const ready = join(this.#root.path, readyFile);
    await eventually('bare runsc holds its memory', () => existsSync(ready) && statSync(ready).size > 0);
    return 'holder';
  }

  checkpointMs(id: string, imageDir: string): Promise<number> {
    const options = ['--leave-running', '--compression=none', '--image-path', imageDir];
    return this.#context.shell.time([...this.#command, 'checkpoint', ...options, id]);
  }

  /** Restores a sandbox and takes it down again, which is not in the time. */
  async restoreMs(imageDir: string): Promise<number> {
    const options = ['--detach', '--bundle', this.#bundle, '--image-path', imageDir];
    const tookMs = await this.#context.shell.time([...this.#command, 'restore', ...options, 'restored']);
    await this.remove('restored');
    return tookMs;
  }

  async remove(id: string): Promise<void> {
    const [program, ...args] = this.#command;
    await run(program, [...args, 'delete', '--force', id]);
  }
}
