import { joinBytes, textOfBytes } from './connection/bytes.ts';

/** How far an exported file is. */
export interface ExportProgress {
  readonly stage: 'image' | 'files' | 'memory';
  /** Of what is in the file, before it was packed. */
  readonly done_bytes: number;
  /** What is expected in all; undefined where the file does not say. */
  readonly total_bytes: number | undefined;
}

const magicBytes = 17;
const headerBytes = 5;
const kinds = { part: 1, data: 2, end: 3, packed: 4 } as const;
const maxManifestBytes = 8 * 1024 * 1024;

/** Passes an exported file on and reads along: docs/formats.md says what is in it. */
export async function* watchExport(
  source: AsyncIterable<Uint8Array>,
  report: (progress: ExportProgress) => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  const watch = new ExportWatch(report);
  for await (const chunk of source) {
    watch.feed(chunk);
    yield chunk;
  }
}

class ExportWatch {
  readonly #report: (progress: ExportProgress) => void;
  /** The beginning of a record that is not here as a whole. */
  #head: Uint8Array = new Uint8Array(0);
  #skip = magicBytes;
  #part = '';
  #manifest: Uint8Array[] = [];
  #total: number | undefined;
  #done = 0;

  constructor(report: (progress: ExportProgress) => void) {
    this.#report = report;
  }

  feed(chunk: Uint8Array): void {
    const skipped = Math.min(this.#skip, chunk.length);
    this.#skip -= skipped;
    if (this.#skip > 0) return;
    const fresh = chunk.subarray(skipped);
    let rest = this.#head.length === 0 ? fresh : joinBytes([this.#head, fresh]);
    for (;;) {
      const taken = this.#record(rest);
      if (taken === 0) break;
      if (taken > rest.length) {
        this.#skip = taken - rest.length;
        rest = new Uint8Array(0);
        break;
      }
      rest = rest.subarray(taken);
    }
    this.#head = rest;
  }

  /** How many bytes the next record has; 0 where too little of it is here. Content may be longer than what is here. */
  #record(bytes: Uint8Array): number {
    if (bytes.length < headerBytes) return 0;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const kind = view.getUint8(0);
    const length = view.getUint32(1, true);
    const end = headerBytes + length;
    if (kind === kinds.end) return Number.POSITIVE_INFINITY;
    if (kind === kinds.part) {
      if (bytes.length < end) return 0;
      this.#begin(textOfBytes(bytes.subarray(headerBytes, end)));
    } else if (this.#part === 'manifest.json') {
      if (bytes.length < end && end < maxManifestBytes) return 0;
      this.#manifest.push(bytes.slice(headerBytes, end));
    } else if (kind === kinds.data) this.#add(length);
    else if (kind === kinds.packed) {
      if (bytes.length < headerBytes + 4) return 0;
      this.#add(view.getUint32(headerBytes, true));
    }
    return end;
  }

  #begin(part: string): void {
    if (this.#part === 'manifest.json') this.#total = totalOf(textOfBytes(joinBytes(this.#manifest)));
    this.#part = part;
    if (part !== 'manifest.json') this.#add(0);
  }

  #add(bytes: number): void {
    this.#done += bytes;
    const stage = this.#part === 'disk' ? 'files' : this.#part === 'memory' ? 'memory' : 'image';
    this.#report({ stage, done_bytes: this.#done, total_bytes: this.#total });
  }
}

const totalOf = (manifest: string): number | undefined => {
  try {
    const { sizes } = JSON.parse(manifest) as { sizes?: Record<string, number> };
    return sizes && Object.values(sizes).reduce((total, bytes) => total + bytes, 0);
  } catch {
    return undefined;
  }
};
