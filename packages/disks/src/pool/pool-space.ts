import { statfsSync } from 'node:fs';
import { readFile, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { hasErrno } from '../native/errno.ts';
import type { PoolServer } from '../native/pool-server.ts';
import { exists } from './mount-table.ts';

const mebibyte = 1024 ** 2;
/** Of the disk around the pool nothing new is begun below this, or below a sixteenth of a small one. */
const mostMarginBytes = 256 * mebibyte;
const marginPart = 1 / 16;
/** How much the ballast may be off; each change commits the pool. */
const ballastStepBytes = 16 * mebibyte;
/** The least that the kernel takes here. */
const metadataChunkBytes = 256 * mebibyte;
/** With less than this for its metadata, or a twentieth of a small pool, it would be short of it soon. */
const leastMetadataBytes = 64 * mebibyte;
const leastMetadataPart = 1 / 20;
/** No disk takes that much between two looks. */
const plentyBytes = 8 * 1024 * mebibyte;
const dueEveryMs = 1_000;
/** While it is full, what was deleted is given back to the disk this often. */
const trimEveryMs = 5_000;

/** The room that disks have, now. */
export interface PoolRoom {
  /** The filesystem gave up writing; only mounting it again helps. */
  readonly isReadOnly: boolean;
  /** Nothing new is begun: the disk of the home has no room for it. */
  readonly isFull: boolean;
  /** Asked before anything is added: throws where there is no room. */
  assertRoom(): void;
  /** What can be written. */
  freeBytes(): Promise<number>;
  /** To be called ten times a second. */
  tend(): Promise<void>;
}

export interface PoolSpaceParts {
  readonly server: PoolServer;
  readonly home: string;
  readonly image: string;
  /** Where it is mounted. */
  readonly directory: string;
}

interface Room {
  readonly freeBytes: number;
  readonly marginBytes: number;
}

/** What the disk of a home has left, and what of it is never used. */
export const roomOf = ({
  bavail,
  blocks,
  bsize,
}: {
  bavail: number;
  blocks: number;
  bsize: number;
}): Room => ({
  freeBytes: bavail * bsize,
  marginBytes: Math.min(mostMarginBytes, blocks * bsize * marginPart),
});

/**
 * The pool is a sparse file: it promises more than the disk around it may have. Its filesystem would give up, and stay
 * read-only, once a block of its metadata found no room. So three things are done, again and again:
 *
 * - All that it set aside for metadata has its room in the file.
 * - A ballast in the pool takes what the disk cannot give any more, so that who writes is told at once that there is no space.
 * - While there is no room, what was deleted is given back to the disk soon instead of within minutes.
 */
export class PoolSpace implements PoolRoom {
  readonly #parts: PoolSpaceParts;
  readonly #ballast: string;
  #allocation: string | undefined;
  #securedBytes = 0;
  #readOnly = false;
  #full = false;
  #ballastBytes = 0;
  #trimmedMs = Number.NEGATIVE_INFINITY;
  #dueMs = 0;

  constructor(parts: PoolSpaceParts) {
    this.#parts = parts;
    this.#ballast = join(parts.directory, '.ballast');
  }

  /** The filesystem gave up writing; only mounting it again helps. */
  get isReadOnly(): boolean {
    return this.#readOnly;
  }

  /** Nothing new is begun: the disk around the pool has no room for it. */
  get isFull(): boolean {
    return this.#full;
  }

  /** What the pool promises beyond what the disk around it has. */
  get ballastBytes(): number {
    return this.#ballastBytes;
  }

  /** Asked before anything is added. */
  assertRoom(): void {
    if (this.#readOnly)
      throw new CoppiceError('unavailable', `The pool ${this.#parts.directory} is read-only.`, {
        hint: 'Run `coppice up`: it mounts the pool again and says which sandboxes it had to end.',
      });
    const room = roomOf(statfsSync(this.#parts.home));
    if (room.freeBytes >= room.marginBytes) return;
    this.#full = true;
    throw noRoom(this.#parts.home, room);
  }

  /** Finds out whether it can be written. */
  async look(): Promise<void> {
    const [answer] = await this.#parts.server.call('space-state', this.#parts.directory);
    this.#readOnly = String(answer) === 'ro';
  }

  /** What can be written, bounded by the disk around the pool. */
  async freeBytes(): Promise<number> {
    const [pool, around] = await Promise.all([statfs(this.#parts.directory), statfs(this.#parts.home)]);
    const { freeBytes, marginBytes } = roomOf(around);
    return Math.max(0, Math.min(pool.bavail * pool.bsize, freeBytes - marginBytes));
  }

  /** To be called ten times a second: while there is plenty it looks every second only. */
  async tend(): Promise<void> {
    const room = roomOf(statfsSync(this.#parts.home));
    const availableBytes = Math.max(0, room.freeBytes - room.marginBytes);
    const isDue = performance.now() >= this.#dueMs;
    if (!isDue && availableBytes > plentyBytes) return;
    this.#full = availableBytes === 0;
    if (isDue) {
      this.#dueMs = performance.now() + dueEveryMs;
      await this.look();
    }
    if (this.#readOnly) return;
    await this.#setBallast(availableBytes);
    if (!isDue) return;
    await this.#secureMetadata();
    if (this.#full) await this.#trim();
  }

  /** Each chunk that the filesystem has set aside since gets its room. */
  async #secureMetadata(): Promise<void> {
    const { server, image, directory } = this.#parts;
    if (this.#allocation === undefined) {
      this.#allocation = await this.#findAllocation();
      if (!this.#full) await this.#widenMetadata();
    }
    const totalBytes = (await this.#totalBytes('metadata')) + (await this.#totalBytes('system'));
    if (totalBytes === this.#securedBytes) return;
    try {
      await server.call('space-secure', image, directory);
      this.#securedBytes = totalBytes;
    } catch (error) {
      // No room now: tried again each time. A disk that cannot reserve at all has to do without.
      if (hasErrno(error, 'EOPNOTSUPP')) this.#securedBytes = totalBytes;
      else if (!hasErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
    }
  }

  async #findAllocation(): Promise<string> {
    const [id] = await this.#parts.server.call('filesystem-id', this.#parts.directory);
    const hex = id!.toString('hex');
    const uuid = [0, 8, 12, 16, 20].map((at, index, all) => hex.slice(at, all[index + 1])).join('-');
    return join('/sys/fs/btrfs', uuid, 'allocation');
  }

  async #totalBytes(kind: 'metadata' | 'system'): Promise<number> {
    return Number(await readFile(join(this.#allocation!, kind, 'total_bytes'), 'utf8'));
  }

  async #widenMetadata(): Promise<void> {
    const { server, directory } = this.#parts;
    // In steps of a gibibyte a large pool would take room that it never needs. Kernels before 6.0 do not have it.
    const chunkSize = join(this.#allocation!, 'metadata/chunk_size');
    if ((await exists(chunkSize)) && Number(await readFile(chunkSize, 'utf8')) > metadataChunkBytes)
      await writeFile(chunkSize, String(metadataChunkBytes));
    const { blocks, bsize } = await statfs(directory);
    const leastBytes = Math.min(leastMetadataBytes, blocks * bsize * leastMetadataPart);
    if ((await this.#totalBytes('metadata')) < leastBytes) await server.call('space-widen', directory);
  }

  async #setBallast(availableBytes: number): Promise<void> {
    const { server, directory } = this.#parts;
    this.#ballastBytes = await sizeOf(this.#ballast);
    const pool = statfsSync(directory);
    const wantedBytes = Math.max(0, pool.bavail * pool.bsize + this.#ballastBytes - availableBytes);
    if (wantedBytes === 0 && this.#ballastBytes === 0) return;
    if (wantedBytes > 0 && Math.abs(wantedBytes - this.#ballastBytes) < ballastStepBytes) return;
    await this.#resizeBallast(wantedBytes);
    // Until then the pool does not count it. That what others wrote did not fit is theirs to hear.
    await server.call('filesystem-sync', directory).catch((error: unknown) => {
      if (!hasErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
    });
  }

  /** As near as can be: what is being written meanwhile takes its part. */
  async #resizeBallast(wantedBytes: number): Promise<void> {
    let stepBytes = wantedBytes - this.#ballastBytes;
    while (stepBytes < 0 || stepBytes >= mebibyte) {
      const nextBytes = this.#ballastBytes + stepBytes;
      try {
        await this.#parts.server.call('space-reserve', this.#ballast, String(nextBytes));
        this.#ballastBytes = nextBytes;
        stepBytes = Math.min(stepBytes, wantedBytes - nextBytes);
        if (stepBytes <= 0) return;
      } catch (error) {
        if (stepBytes < 0 || !hasErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
        stepBytes = Math.floor(stepBytes / 2);
      }
    }
  }

  async #trim(): Promise<void> {
    if (performance.now() - this.#trimmedMs < trimEveryMs) return;
    await this.#parts.server.call('space-trim', this.#parts.directory);
    this.#trimmedMs = performance.now();
  }
}

export const noRoom = (home: string, { freeBytes, marginBytes }: Room): CoppiceError =>
  new CoppiceError(
    'no_space',
    `The disk of ${home} has ${megabytes(freeBytes)} MiB free; below ${megabytes(marginBytes)} MiB nothing new is begun.`,
    { hint: 'Delete snapshots or sandboxes, or free space on that disk. What runs goes on.' },
  );

const megabytes = (bytes: number): number => Math.floor(bytes / mebibyte);

const sizeOf = async (file: string): Promise<number> => ((await exists(file)) ? (await stat(file)).size : 0);
