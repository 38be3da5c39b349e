import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { BenchContext } from '../harness/bench-context.ts';
import type { PeerRoot } from './peer-root.ts';

const run = promisify(execFile);

/** Bundles as `runc spec` writes them, over the same root. */
export class Runc {
  readonly #context: BenchContext;
  readonly #root: PeerRoot;
  readonly #stateDir: string;
  #started = 0;

  constructor(context: BenchContext, root: PeerRoot) {
    this.#context = context;
    this.#root = root;
    this.#stateDir = join(context.directory, 'runc');
  }

  async bundle(...args: string[]): Promise<string> {
    const directory = join(this.#context.directory, `bundle-${args.join('-').replaceAll(/\W/g, '')}`);
    mkdirSync(directory, { recursive: true });
    await run('runc', ['spec', '--bundle', directory]);
    const file = join(directory, 'config.json');
    const spec = JSON.parse(readFileSync(file, 'utf8'));
    spec.process.terminal = false;
    spec.process.args = args;
    spec.root = { path: this.#root.path, readonly: false };
    writeFileSync(file, JSON.stringify(spec));
    return directory;
  }

  runCommand(bundle: string): string[] {
    this.#started += 1;
    return [...this.#runc, 'run', '--bundle', bundle, `coppice-bench-${process.pid}-${this.#started}`];
  }

  /** A container that stays; its id. */
  async start(bundle: string): Promise<string> {
    const id = `coppice-bench-${process.pid}-stays`;
    await this.#context.shell.time([...this.#runc, 'run', '--detach', '--bundle', bundle, id]);
    this.#context.atEnd(() => run('runc', [...this.#runc.slice(1), 'delete', '--force', id]));
    return id;
  }

  execCommand(id: string, ...command: string[]): string[] {
    return [...this.#runc, 'exec', id, ...command];
  }

  get #runc(): [string, ...string[]] {
    return ['runc', '--root', this.#stateDir];
  }
}
