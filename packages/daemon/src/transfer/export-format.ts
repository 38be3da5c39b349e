/**
 * An exported file: a line that names its form, records, then the SHA-256 of all that (32 bytes). A record is a kind (u8), a length
 * (u32, little endian) and as many bytes. PART begins a part by its name. DATA is a piece of it as it is; PACKED is the length of a
 * piece (u32, little endian) and the piece as one zstd frame. First comes `manifest.json`, never packed, then the parts that it
 * lists. END closes the file with the size and digest of every part.
 *
 * In form 1 all records together are one zstd stream, and there is no PACKED.
 */
export const exportMagic = Buffer.from('coppice-export 2\n');
export const firstExportMagic = Buffer.from('coppice-export 1\n');
export const exportMagicPrefix = Buffer.from('coppice-export ');
export const digestBytes = 32;

/** Which of the forms that this version reads a file has. */
export type ExportForm = 1 | 2;

export const recordKinds = { part: 1, data: 2, end: 3, packed: 4 } as const;
export const recordHeaderBytes = 5;
/** A piece has at most these many bytes, packed or not. Each is packed by itself, so that all cores can. */
export const maxPieceBytes = 4 * 1024 * 1024;
/** The largest environment there may be, with every character escaped, takes 6 MiB. */
export const maxManifestBytes = 8 * 1024 * 1024;

export const manifestPart = 'manifest.json';

export interface PartDigest {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}
