import { rmSync, statfsSync, statSync, truncateSync } from 'node:fs';

const mebibyte = 1024 ** 2;
const reserveBytes = 32 * mebibyte;
/** Given back at a time: whatever else writes to the disk may take what the database does not need at once. */
const sliceBytes = 2 * mebibyte;
/** What stays free beside the reserve when it is taken again. */
const comfortBytes = 4 * reserveBytes;

/**
 * A file that takes room on the disk of the home for the day when there is none left: without it, the daemon could
 * write down nothing any more, not even that something is deleted.
 */
export class HomeReserve {
  readonly #file: string;
  readonly #home: string;

  constructor(file: string, home: string) {
    this.#file = file;
    this.#home = home;
  }

  /** Before the first write of a start: room for a few files. */
  relieve(): void {
    while (this.#freeBytes() < 2 * sliceBytes && this.release());
  }

  /** Gives a part of the room back; says whether there was any. */
  release(): boolean {
    const sizeBytes = this.#sizeBytes();
    if (sizeBytes === 0) return false;
    if (sizeBytes > sliceBytes) truncateSync(this.#file, sizeBytes - sliceBytes);
    else rmSync(this.#file);
    return true;
  }

  /** Takes again what was given back, once there is plenty; `reserve` makes a file take so much room. */
  async refill(reserve: (file: string, bytes: number) => Promise<unknown>): Promise<void> {
    const missingBytes = reserveBytes - this.#sizeBytes();
    if (missingBytes > 0 && this.#freeBytes() >= missingBytes + comfortBytes)
      await reserve(this.#file, reserveBytes);
  }

  #sizeBytes(): number {
    return statSync(this.#file, { throwIfNoEntry: false })?.size ?? 0;
  }

  #freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.#home);
    return bavail * bsize;
  }
}
