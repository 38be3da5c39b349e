import { isUtf8 } from 'node:buffer';
import { extname } from 'node:path';
import { unfinishedTail } from '../../inside/output-text.ts';

const magic: readonly (readonly [string, string])[] = [
  ['89504e470d0a1a0a', 'image/png'],
  ['ffd8ff', 'image/jpeg'],
  ['47494638', 'image/gif'],
  ['25504446', 'application/pdf'],
  ['504b0304', 'application/zip'],
  ['1f8b', 'application/gzip'],
  ['28b52ffd', 'application/zstd'],
  ['fd377a585a00', 'application/x-xz'],
  ['7f454c46', 'application/x-elf'],
  ['0061736d', 'application/wasm'],
  ['53514c69746520666f726d6174203300', 'application/vnd.sqlite3'],
];

const textTypes: Readonly<Record<string, string>> = {
  '.json': 'application/json',
  '.html': 'text/html',
  '.css': 'text/css',
  '.csv': 'text/csv',
  '.md': 'text/markdown',
  '.svg': 'image/svg+xml',
  '.xml': 'application/xml',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.ts': 'text/x-typescript',
  '.py': 'text/x-python',
  '.yaml': 'application/yaml',
  '.yml': 'application/yaml',
  '.toml': 'application/toml',
};

export interface FileType {
  readonly isText: boolean;
  readonly mimeType: string;
}

/** A NUL byte, or what is no UTF-8, makes a file binary; a character cut at the end does not. */
export const fileType = (path: string, bytes: Buffer, isCut: boolean): FileType => {
  const whole = isCut ? bytes.subarray(0, bytes.length - unfinishedTail(bytes)) : bytes;
  const isText = !whole.includes(0) && isUtf8(whole);
  if (isText) return { isText, mimeType: textTypes[extname(path).toLowerCase()] ?? 'text/plain' };
  const head = bytes.subarray(0, 16).toString('hex');
  if (head.startsWith('52494646') && bytes.subarray(8, 12).toString('latin1') === 'WEBP')
    return { isText, mimeType: 'image/webp' };
  return {
    isText,
    mimeType: magic.find(([start]) => head.startsWith(start))?.[1] ?? 'application/octet-stream',
  };
};
