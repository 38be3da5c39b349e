import { mkdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { DiskUsage } from '../disk-store.ts';
import type { PoolServer } from '../native/pool-server.ts';
import type { CloneOptions, CreateOptions, TreeEngine } from './tree-engine.ts';

/**
 * Trees are plain directories, cloned file by file: `reflink` shares their blocks (xfs, bcachefs, btrfs without
 * subvolumes), `copy` writes them again, which any filesystem can.
 */
export class CopyingEngine implements TreeEngine {
  readonly name: 'reflink' | 'copy';
  readonly atomicClone = false;
  readonly counter = undefined;
  readonly #server: PoolServer;
  readonly #mode: 'reflink' | 'plain';

  constructor(server: PoolServer, name: 'reflink' | 'copy') {
    this.#server = server;
    this.name = name;
    this.#mode = name === 'reflink' ? 'reflink' : 'plain';
  }

  async probe(directory: string): Promise<boolean> {
    if (this.name === 'copy') return true;
    const [answer] = await this.#server.call('probe-reflink', directory);
    return answer?.toString() === 'reflink';
  }

  async create(directory: string, options: CreateOptions = {}): Promise<undefined> {
    const { draft = directory, directories = [] } = options;
    await mkdir(draft, { mode: 0o755 });
    for (const name of directories) await mkdir(join(draft, name), { mode: 0o755 });
    if (draft !== directory) await this.#server.call('rename', draft, directory);
  }

  async clone(source: string, target: string, { signal }: CloneOptions): Promise<undefined> {
    await this.#server.until(signal).call('copy', source, target, this.#mode);
  }

  async move(directory: string, target: string): Promise<void> {
    await this.#server.call('rename', directory, target);
  }

  async commit(place: string): Promise<void> {
    await this.#server.call('filesystem-sync', place);
  }

  async remove(directory: string): Promise<void> {
    await this.#server.call('remove', dirname(directory), basename(directory));
  }

  async usage(directory: string): Promise<DiskUsage> {
    const fields = await this.#server.call('measure', directory, this.#mode);
    return { referencedBytes: Number(fields[0]), usedBytes: Number(fields[1]) };
  }
}
