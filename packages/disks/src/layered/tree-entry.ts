import { textOfBytes } from './path-text.ts';

type EntryKind = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'device';

/** One name in one directory of one layer. */
export interface TreeEntry {
  readonly name: string;
  readonly kind: EntryKind;
  /** Permission bits only. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  /** What it takes on the disk; holes take nothing. */
  readonly allocatedBytes: number;
  readonly inode: bigint;
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
  /** Hides what lies below in an overlay. */
  readonly whiteout: boolean;
  /** A directory that hides the content of the one below. */
  readonly opaque: boolean;
  /** How many names the file has. */
  readonly links: number;
  /** Of a symbolic link; empty otherwise. */
  readonly target: string;
  /** Of the extended attributes that belong to the file as its content does; empty without any. */
  readonly attributesDigest: string;
}

const kinds: Readonly<Record<number, EntryKind>> = {
  8: 'file',
  4: 'directory',
  10: 'symlink',
  1: 'fifo',
  12: 'socket',
};

const headerBytes = 68;

/** The bytes of its name, without the rest. */
export const nameOf = (record: Buffer): Buffer =>
  record.subarray(headerBytes, headerBytes + record.readUInt32LE(60));

/** The form is `struct entry_record` in native/pool/tree.c. */
export const decodeEntry = (record: Buffer): TreeEntry => {
  const mode = record.readUInt32LE(0);
  const flags = record.readUInt32LE(12);
  const nameBytes = nameOf(record);
  const nameEnd = headerBytes + nameBytes.length;
  const targetEnd = nameEnd + record.readUInt32LE(64);
  return {
    name: textOfBytes(nameBytes),
    kind: kinds[mode >>> 12] ?? 'device',
    mode: mode & 0o7777,
    uid: record.readUInt32LE(4),
    gid: record.readUInt32LE(8),
    sizeBytes: Number(record.readBigUInt64LE(16)),
    allocatedBytes: Number(record.readBigUInt64LE(24)),
    inode: record.readBigUInt64LE(32),
    mtimeNs: record.readBigInt64LE(40),
    ctimeNs: record.readBigInt64LE(48),
    whiteout: (flags & 1) !== 0,
    opaque: (flags & 2) !== 0,
    links: record.readUInt32LE(56),
    target: textOfBytes(record.subarray(nameEnd, targetEnd)),
    attributesDigest: record.toString('hex', targetEnd),
  };
};
