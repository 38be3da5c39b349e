import type { BodyReader } from './body-reader.ts';
import type { FileKind, FileStat, WatchEvent } from './guest.ts';
import { protocolError } from './wire.ts';

const kinds: readonly FileKind[] = ['file', 'directory', 'symlink', 'fifo', 'socket', 'device'];
const events: readonly WatchEvent['kind'][] = ['created', 'modified', 'removed', 'moved', 'overflow'];

export const decodeStat = (reader: BodyReader): FileStat => {
  const kind = kinds[reader.u8()];
  if (kind === undefined) throw protocolError('a file has an unknown kind');
  const mode = reader.u32();
  const uid = reader.u32();
  const gid = reader.u32();
  const sizeBytes = reader.u64();
  const mtimeMs = reader.i64() / 1000;
  const path = reader.string();
  const target = reader.u8() === 0 ? null : reader.string();
  return { path, kind, sizeBytes, mode, uid, gid, mtimeMs, target };
};

export const decodeWatchEvent = (reader: BodyReader): WatchEvent => {
  const kind = events[reader.u8()];
  if (kind === undefined) throw protocolError('a watch event has an unknown kind');
  const path = reader.string();
  const to = reader.u8() === 0 ? null : reader.string();
  return { kind, path, to };
};
