import { CoppiceError } from '@coppice/protocol/errors';
import type { NodeLocation } from './tree-root.ts';

const magic = 0x314e5443;
const recordBytes = 72;
const locationBytes = 24;
const headerBytes = 16;
/** Pack number that stands for "a blob of its own". */
export const blobPack = 'f'.repeat(16);
export const nowhere = '0'.repeat(16);

export type EntryType = 'f' | 'd' | 'l' | 'p' | 'c' | 'b' | 'h';

export interface TreeEntry {
  readonly type: EntryType;
  /** As bytes: names need not be UTF-8. */
  readonly name: Buffer;
  readonly mode: number;
  readonly mtimeMs: number;
  readonly size: number;
  readonly hash: string;
  readonly link: string;
  /** Everything that the parent's hash covers, to compare entries at once. */
  readonly canonical: Buffer;
  readonly location: NodeLocation;
}

/** native/tree/node.h says how a directory is laid out. Its hash is not checked: what is damaged may say anything. */
export const decodeNode = (bytes: Buffer): TreeEntry[] => {
  try {
    if (bytes.readUInt32LE(0) === magic) return decodeEntries(bytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  throw new CoppiceError('corrupt', 'a stored directory cannot be read', { hint: 'Run `jvs verify --all`.' });
};

const decodeEntries = (bytes: Buffer): TreeEntry[] => {
  const count = bytes.readUInt32LE(4);
  const locationsAt = headerBytes + bytes.readUInt32LE(8);
  const entries: TreeEntry[] = [];
  let at = headerBytes;
  for (let index = 0; index < count; index += 1) {
    const nameBytes = bytes.readUInt16LE(at + 2);
    const linkBytes = bytes.readUInt16LE(at + 32);
    const end = at + recordBytes + nameBytes + linkBytes + bytes.readUInt32LE(at + 36);
    const nameAt = at + recordBytes;
    const place = locationsAt + index * locationBytes;
    entries.push({
      type: String.fromCharCode(bytes[at] ?? 0) as EntryType,
      name: bytes.subarray(nameAt, nameAt + nameBytes),
      mode: bytes.readUInt32LE(at + 4),
      mtimeMs: Number(bytes.readBigInt64LE(at + 16) / 1_000_000n),
      size: Number(bytes.readBigUInt64LE(at + 24)),
      hash: bytes.toString('hex', at + 40, at + recordBytes),
      link: bytes.toString('utf8', nameAt + nameBytes, nameAt + nameBytes + linkBytes),
      canonical: bytes.subarray(at, end),
      location: {
        pack: bytes.readBigUInt64LE(place).toString(16).padStart(16, '0'),
        offset: Number(bytes.readBigUInt64LE(place + 8)),
        length: Number(bytes.readBigUInt64LE(place + 16)),
      },
    });
    at = end;
  }
  return entries;
};
