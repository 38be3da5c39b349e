import type { PoolCalls } from '../native/pool-server.ts';
import { openFileBeneath } from './open-beneath.ts';
import { bytesOfText } from './path-text.ts';

/** A stretch of a file that holds data; what lies between two of them are holes. */
export interface Extent {
  readonly offsetBytes: number;
  readonly lengthBytes: number;
}

export interface FilePiece {
  readonly offsetBytes: number;
  readonly bytes: Buffer;
}

/** A node of a tree that is a file. */
interface FilePlace {
  readonly layerDir: string;
  readonly path: string;
  readonly entry: { readonly sizeBytes: number; readonly allocatedBytes: number };
}

const pieceBytes = 256 * 1024;
const extentBytes = 16;

/** What is in a file of a layer that stands still, without its holes. */
export class FileContent {
  readonly layerDir: string;
  /** From the root of the layer, without a leading slash. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly #server: PoolCalls;
  readonly #allocatedBytes: number;

  constructor(server: PoolCalls, { layerDir, path, entry }: FilePlace) {
    this.#server = server;
    this.layerDir = layerDir;
    this.path = path;
    this.sizeBytes = entry.sizeBytes;
    this.#allocatedBytes = entry.allocatedBytes;
  }

  /** One that covers all of it where there is no hole. */
  async extents(): Promise<Extent[]> {
    if (this.#allocatedBytes >= this.sizeBytes) return [{ offsetBytes: 0, lengthBytes: this.sizeBytes }];
    const fields = await this.#server.call('extents', this.layerDir, bytesOfText(this.path));
    return fields.flatMap((field) =>
      Array.from({ length: field.length / extentBytes }, (_, index) => ({
        offsetBytes: Number(field.readBigUInt64LE(index * extentBytes)),
        lengthBytes: Number(field.readBigUInt64LE(index * extentBytes + extentBytes / 2)),
      })),
    );
  }

  async *pieces(extents: readonly Extent[]): AsyncGenerator<FilePiece, void, undefined> {
    const file = await openFileBeneath(this.layerDir, this.path);
    try {
      for (const { offsetBytes, lengthBytes } of extents)
        for (let at = offsetBytes; at < offsetBytes + lengthBytes; ) {
          const buffer = Buffer.allocUnsafe(Math.min(pieceBytes, offsetBytes + lengthBytes - at));
          const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
          if (bytesRead === 0) throw new Error(`/${this.path} became shorter while it was read`);
          yield { offsetBytes: at, bytes: buffer.subarray(0, bytesRead) };
          at += bytesRead;
        }
    } finally {
      await file.close();
    }
  }
}
