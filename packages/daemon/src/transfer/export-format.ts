/**
 * An exported file: this line, then one zstd stream, then the SHA-256 of all that (32 bytes). In the stream are records: a kind
 * (u8), a length (u32, little endian) and as many bytes. PART begins a part by its name and DATA is a piece of it; first
 * `manifest.json`, then the parts that it lists. END closes it with the size and digest of every part.
 */
export const exportMagic = Buffer.from('coppice-export 1\n');
export const exportMagicPrefix = Buffer.from('coppice-export ');
export const digestBytes = 32;

export const recordKinds = { part: 1, data: 2, end: 3 } as const;
export const recordHeaderBytes = 5;
export const maxRecordBytes = 1024 * 1024;
/** The largest environment there may be, with every character escaped, takes 6 MiB. */
export const maxManifestBytes = 8 * 1024 * 1024;

export const manifestPart = 'manifest.json';

export interface PartDigest {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}
