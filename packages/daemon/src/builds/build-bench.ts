import type { Services } from '../services.ts';
import { SandboxFiles } from './sandbox-files.ts';
import type { Position } from './stage-state.ts';

export type BenchServices = Pick<Services, 'sandboxes' | 'snapshots' | 'exec' | 'files' | 'network'>;

export interface BenchOptions {
  readonly services: BenchServices;
  /** Stands in the names of all sandboxes of the build. */
  readonly buildId: string;
  readonly internet: boolean;
  readonly cpus?: number | undefined;
  readonly memory_mb?: number | undefined;
  readonly disk_mb?: number | undefined;
}

/** A sandbox of a build, and which files it has now. */
export interface Worker {
  readonly id: string;
  readonly files: SandboxFiles;
  key: string;
}

export const buildLabel = 'coppice.build';
export const cacheTag = 'build-cache';
export const failedTag = 'build-failed';

/** The sandboxes that a build works in. None is left when it ends. */
export class BuildBench {
  readonly #options: BenchOptions;
  readonly #workers = new Set<Worker>();
  readonly #readers = new Map<string, Promise<Worker>>();
  #count = 0;

  constructor(options: BenchOptions) {
    this.#options = options;
  }

  get services(): BenchServices {
    return this.#options.services;
  }

  /** One with the files of that position, to write to. */
  async open(position: Position): Promise<Worker> {
    const { services, buildId, internet, cpus, memory_mb, disk_mb } = this.#options;
    this.#count += 1;
    const name = `build-${buildId}-${this.#count}`;
    const labels = { [buildLabel]: buildId };
    const limits = {
      ...(cpus === undefined ? {} : { cpus }),
      ...(memory_mb === undefined ? {} : { memory_mb }),
      ...(disk_mb === undefined ? {} : { disk_mb }),
    };
    const id = await this.#make(position, { name, labels, limits });
    const worker: Worker = { id, files: new SandboxFiles(services.files, id), key: position.key };
    this.#workers.add(worker);
    if (position.snapshotId !== undefined) {
      // The policy and limits of a snapshot are those of the build that took it.
      await services.network.patch(id, { allow_internet: internet });
      if (Object.keys(limits).length > 0) await services.sandboxes.update(id, limits);
    }
    return worker;
  }

  /** One with the files of that position, to read from: the same for all that ask. */
  openToRead(position: Position): Promise<Worker> {
    const known = this.#readers.get(position.key);
    if (known !== undefined) return known;
    const opening = this.open(position);
    this.#readers.set(position.key, opening);
    return opening;
  }

  async #make(
    { imageId, snapshotId }: Position,
    { name, labels, limits }: { name: string; labels: Record<string, string>; limits: object },
  ): Promise<string> {
    const { services, internet } = this.#options;
    if (snapshotId === undefined) {
      const network = {
        allow_internet: internet,
        allow_inter_sandbox: false,
        allowed_ports: [],
        allow: [],
        deny: [],
        allow_host_ports: [],
        ask: false,
      };
      const made = await services.sandboxes.create(
        { name, image: imageId, labels, network, ...limits },
        { by: 'admin' },
      );
      return made.id;
    }
    const { forks } = await services.snapshots.forkSnapshot(snapshotId, { name, count: 1, labels });
    return forks[0]!.id;
  }

  async close(worker: Worker): Promise<void> {
    this.#workers.delete(worker);
    await this.#options.services.sandboxes.destroy(worker.id);
  }

  async closeAll(): Promise<void> {
    for (const worker of [...this.#workers]) await this.close(worker).catch(() => {});
  }
}
