import { basename, dirname, join } from 'node:path';
import type { DiskUsage } from '../disk-store.ts';
import { hasErrno } from '../native/errno.ts';
import type { PoolServer } from '../native/pool-server.ts';
import type { CloneOptions, CreateOptions, TreeCount, TreeCounter, TreeEngine } from './tree-engine.ts';

export interface BtrfsEngineOptions {
  /** Simple quotas are enabled on the filesystem. */
  readonly quotas: boolean;
}

/** Trees are subvolumes: cloning costs the same whatever they hold. */
export class BtrfsEngine implements TreeEngine {
  readonly name = 'btrfs';
  readonly atomicClone = true;
  readonly counter: TreeCounter | undefined;
  readonly #server: PoolServer;

  constructor(server: PoolServer, options: BtrfsEngineOptions) {
    this.#server = server;
    this.counter = options.quotas ? new QuotaCounter(server) : undefined;
  }

  async probe(directory: string): Promise<boolean> {
    const [answer] = await this.#server.call('probe', directory);
    return answer?.toString() !== 'none';
  }

  async create(directory: string, options: CreateOptions = {}): Promise<string> {
    const { draft = directory, directories = [] } = options;
    const [limit, names] = [this.#limit(options), directories.join('/')];
    const [id] = await this.#server.call('subvolume-create', draft, limit, names, basename(directory));
    return String(id);
  }

  async clone(source: string, target: string, options: CloneOptions): Promise<string> {
    const access = options.readOnly ? 'ro' : 'rw';
    const [id] = await this.#server.call('subvolume-snapshot', source, target, access, this.#limit(options));
    return String(id);
  }

  async move(directory: string, target: string): Promise<void> {
    try {
      await this.#server.call('rename', directory, target);
    } catch (error) {
      if (!hasErrno(error, 'EROFS')) throw error;
      // A read-only subvolume cannot change its directory.
      await this.#server.call('subvolume-access', directory, 'rw');
      await this.#server.call('rename', directory, target);
      await this.#server.call('subvolume-access', target, 'ro');
    }
  }

  async commit(place: string): Promise<void> {
    await this.#server.call('filesystem-commit', place);
  }

  async remove(directory: string): Promise<void> {
    try {
      await this.#server.call('subvolume-delete', directory);
    } catch (error) {
      if (hasErrno(error, 'ENOENT')) return;
      // Not a subvolume: a plain directory stands there, such as one with the memory of a checkpoint, or one from which
      // a tree was being deleted when the machine stopped.
      if (!hasErrno(error, 'EINVAL', 'ENOTDIR')) throw error;
      await this.#server.call('subvolume-delete', join(directory, 'tree')).catch((inner: unknown) => {
        if (!hasErrno(inner, 'ENOENT', 'EINVAL', 'ENOTDIR')) throw inner;
      });
      await this.#server.call('remove', dirname(directory), basename(directory));
    }
  }

  async usage(directory: string): Promise<DiskUsage> {
    const fields = await this.#server.call('measure', directory, 'reflink');
    return { referencedBytes: Number(fields[0]), usedBytes: Number(fields[1]) };
  }

  #limit({ limitBytes = 0 }: { limitBytes?: number }): string {
    return this.counter === undefined ? '-' : String(limitBytes);
  }
}

class QuotaCounter implements TreeCounter {
  readonly #server: PoolServer;

  constructor(server: PoolServer) {
    this.#server = server;
  }

  async read(directory: string, options: { fresh: boolean }): Promise<TreeCount> {
    const fields = await this.#server.call('subvolume-usage', directory, options.fresh ? 'sync' : 'nosync');
    return { writtenBytes: Number(fields[0]), limitBytes: Number(fields[1]), identity: String(fields[2]) };
  }

  async written(directory: string, identities: readonly string[]): Promise<number[]> {
    if (identities.length === 0) return [];
    return (await this.#server.call('quota-written', directory, identities.join('/'))).map(Number);
  }

  async limit(directory: string, limitBytes: number): Promise<void> {
    await this.#server.call('quota-limit', directory, String(limitBytes));
  }
}
