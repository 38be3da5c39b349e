import { execFile } from 'node:child_process';
import { statfsSync, statSync } from 'node:fs';
import { mkdir, open, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { CoppiceError } from '@coppice/protocol';
import { BtrfsEngine } from '../engines/btrfs-engine.ts';
import type { TreeEngine } from '../engines/tree-engine.ts';
import { hasErrno } from '../native/errno.ts';
import type { PoolServer } from '../native/pool-server.ts';
import { exists, loopDevicesOf, type Mount, mountsAt } from './mount-table.ts';
import { type PoolRoom, PoolSpace } from './pool-space.ts';
import { enableQuotas } from './quotas.ts';

const gibibyte = 1024 ** 3;
const minimumBytes = 256 * 1024 ** 2;
const mountOptions = 'discard=async';
const releaseDeadlineMs = 60_000;

export type PoolEngine = TreeEngine['name'];

export interface PoolOptions {
  /** The data directory; the pool is `pool` in it, and `pool.img` where it needs a filesystem of its own. */
  readonly home: string;
  /** The program coppice-pool. */
  readonly programPath: string;
  /** Size of a new pool; the file behind it is sparse. By default 64 GiB, or most of what is free. */
  readonly sizeBytes?: number;
  /** Grows when less than this is free. By default an eighth of its size. */
  readonly growBelowBytes?: number;
  /** Off: disks have no enforced size, for kernels without simple quotas. */
  readonly quotas?: boolean;
  /** How disks are kept. `auto`, the default: btrfs, and what the filesystem of the home can do where btrfs cannot be had. */
  readonly engine?: PoolEngine | 'auto';
  /** Ends all that uses the pool, where it has to be mounted again before anything else can be done. */
  readonly evict?: () => Promise<void>;
}

/** Where the disks of one home live. While it is open no other process can open it. */
export interface Pool {
  /** The directory for the store. */
  readonly directory: string;
  readonly engine: TreeEngine;
  readonly server: PoolServer;
  readonly space: PoolRoom;
  /** Why it is not the btrfs filesystem that was wanted; undefined where it is what was wanted. */
  readonly fallback: string | undefined;
  /** It was found read-only and was mounted again: what used it has been ended. */
  readonly wasReadOnly: boolean;
  /** Makes sure that something can be added: refuses where there is no room, and grows the pool when little is free. Returns whether it grew. */
  grow(): Promise<boolean>;
  /** Leaves it mounted, as sandboxes go on running without the daemon. */
  close(): Promise<void>;
  /** Closes it; when it returns neither mount nor loop device is left. */
  unmount(): Promise<void>;
  /** Unmounts it and deletes all that it held. */
  purge(): Promise<void>;
}

const run = promisify(execFile);

/** A btrfs filesystem in a sparse file, whatever the home is on. */
export class LoopPool implements Pool {
  readonly directory: string;
  readonly engine: TreeEngine;
  readonly server: PoolServer;
  readonly space: PoolSpace;
  readonly fallback = undefined;
  wasReadOnly = false;
  readonly #home: string;
  readonly #image: string;
  readonly #options: PoolOptions;

  constructor(home: string, server: PoolServer, options: PoolOptions) {
    this.#home = home;
    this.#options = options;
    this.#image = join(home, 'pool.img');
    this.directory = join(home, 'pool');
    this.server = server;
    this.space = new PoolSpace({ server, home, image: this.#image, directory: this.directory });
    this.engine = new BtrfsEngine(server, { quotas: options.quotas ?? true });
  }

  /** Removes an image that was made and could not be mounted: it holds nothing. */
  static async discard(home: string): Promise<void> {
    for (const name of ['pool.img', 'pool.img.new']) await rm(join(home, name), { force: true });
  }

  /** Idempotent: a daemon that was killed left it mounted, or attached, or half made. */
  async mount(): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o700 });
    const [mounted] = await mountsAt(this.directory);
    if (mounted === undefined) {
      await this.#makeImage();
      await this.#attach();
    } else {
      await this.#checkMount(mounted);
      await this.#mendMount();
    }
    if (this.engine.counter !== undefined) await enableQuotas(this.server, this.directory);
    await this.space.tend();
  }

  async #checkMount(mounted: Mount): Promise<void> {
    if (mounted.type !== 'btrfs' || !(await loopDevicesOf(this.#image)).includes(mounted.source)) {
      throw new CoppiceError(
        'wrong_state',
        `${this.directory} is the mount point of ${mounted.source}, not of its pool.`,
        {
          hint: `Unmount it: umount ${this.directory}`,
        },
      );
    }
  }

  /** A filesystem that gave up is whole on the disk, as it was at its last commit: it comes back by being mounted again. */
  async #mendMount(): Promise<void> {
    await this.space.look();
    if (!this.space.isReadOnly) return;
    await this.#options.evict?.();
    await this.#detach();
    await this.#attach();
    this.wasReadOnly = true;
  }

  async grow(): Promise<boolean> {
    // Asked before each disk is made: a turn through the thread pool would take longer than the two answers.
    const [pool, { size }] = [statfsSync(this.directory), statSync(this.#image)];
    this.space.assertRoom();
    const promisedBytes = pool.bavail * pool.bsize + this.space.ballastBytes;
    if (promisedBytes >= (this.#options.growBelowBytes ?? size / 8)) return false;
    const around = await statfs(this.#home);
    const wanted = roundDown(Math.min(size * 2, size + 0.8 * around.bavail * around.bsize));
    if (wanted <= size) return false;
    const [device] = await loopDevicesOf(this.#image);
    if (device === undefined) {
      throw new CoppiceError('wrong_state', `The pool ${this.#image} is not attached to a loop device.`);
    }
    const file = await open(this.#image, 'r+');
    try {
      await file.truncate(wanted);
    } finally {
      await file.close();
    }
    await this.server.call('mount-grow', device, this.directory);
    return true;
  }

  async close(): Promise<void> {
    await this.server.close();
  }

  async unmount(): Promise<void> {
    await this.#detach();
    await this.server.close();
  }

  async purge(): Promise<void> {
    await this.#detach();
    await rm(this.#image, { force: true });
    await rm(this.directory, { recursive: true, force: true });
    await rm(join(this.#home, 'pool.lock'), { force: true });
    await this.server.close();
  }

  async #makeImage(): Promise<void> {
    if (await exists(this.#image)) return;
    const draft = `${this.#image}.new`;
    await rm(draft, { force: true });
    const sizeBytes = await this.#initialSize();
    const file = await open(draft, 'wx', 0o600);
    try {
      // On btrfs each write to the image would be copied elsewhere, and the image end up in pieces. Said while it is empty.
      const [filesystem] = await this.server.call('probe', this.#home);
      if (filesystem?.toString() !== 'none') await run('chattr', ['+C', draft]);
      await file.truncate(sizeBytes);
    } finally {
      await file.close();
    }
    try {
      await run('mkfs.btrfs', [
        '--quiet',
        '--nodiscard',
        '--metadata',
        'single',
        '--label',
        'coppice',
        '--',
        draft,
      ]);
    } catch (error) {
      await rm(draft, { force: true });
      const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
      throw new CoppiceError(
        missing ? 'unsupported' : 'internal',
        missing
          ? 'mkfs.btrfs is not installed, so no pool can be made.'
          : `mkfs.btrfs could not make ${draft}: ${(error as Error).message}`,
        missing ? { hint: 'Install it: apt-get install btrfs-progs' } : { cause: error },
      );
    }
    await rename(draft, this.#image);
  }

  async #initialSize(): Promise<number> {
    if (this.#options.sizeBytes !== undefined) return this.#options.sizeBytes;
    const { bavail, bsize } = await statfs(this.#home);
    const sizeBytes = roundDown(Math.min(64 * gibibyte, 0.8 * bavail * bsize));
    if (sizeBytes >= minimumBytes) return sizeBytes;
    throw new CoppiceError(
      'no_space',
      `${this.#home} has ${bavail * bsize} bytes free, too little for a pool.`,
      {
        hint: 'Free some space, or choose a COPPICE_HOME on a larger disk.',
      },
    );
  }

  async #attach(): Promise<void> {
    // Two loop devices on one image would be two filesystems in one: an attached one is used again.
    const [attached] = await loopDevicesOf(this.#image);
    try {
      if (attached !== undefined)
        await this.server.call('mount-device', attached, this.directory, 'btrfs', mountOptions);
      else await this.server.call('mount-image', this.#image, this.directory, 'btrfs', mountOptions);
    } catch (error) {
      if (hasErrno(error, 'ENODEV')) {
        throw new CoppiceError('unsupported', 'This kernel has no btrfs, which the pool of disks needs.', {
          hint: 'Load it (modprobe btrfs), or run a kernel that has it.',
          cause: error,
        });
      }
      if (error instanceof CoppiceError && error.message.includes('loop device')) {
        throw new CoppiceError('unsupported', `No loop device can be had for the pool: ${error.message}`, {
          hint: 'Load the module (modprobe loop), and in a container pass /dev/loop-control and /dev/loop*.',
          cause: error,
        });
      }
      throw error;
    }
  }

  async #detach(): Promise<void> {
    const deadline = Date.now() + releaseDeadlineMs;
    const ids = new Set<string>();
    while ((await mountsAt(this.directory)).length > 0) {
      const [id] = await this.server.call('filesystem-id', this.directory);
      ids.add(id!.toString('hex'));
      try {
        await this.server.call('unmount', this.directory);
      } catch (error) {
        if (!hasErrno(error, 'EBUSY') || Date.now() > deadline) throw error;
        await sleep(20);
      }
    }
    // The kernel lets go of the loop device a moment after the last user of the filesystem.
    for (;;) {
      const loops = await loopDevicesOf(this.#image);
      if (loops.length === 0) return;
      const held = (await Promise.all([...ids].map((id) => this.server.call('mount-release', id)))).flat();
      if (Date.now() > deadline) {
        const holders = held.map(String);
        throw new CoppiceError('in_use', `The pool ${this.#image} is still held on ${loops.join(', ')}.`, {
          hint:
            holders.length > 0
              ? `End the processes ${holders.join(', ')}.`
              : 'End the sandboxes that use it.',
          details: { holders, loops },
        });
      }
      await sleep(20);
    }
  }
}

const roundDown = (bytes: number): number => Math.floor(bytes / 1024 ** 2) * 1024 ** 2;
