import type { NodeAttributes } from '@coppice/disks';

const blockBytes = 512;

export interface TarEntry {
  readonly name: string;
  readonly type: 'directory' | 'symlink';
  readonly target?: string;
  readonly attributes: NodeAttributes;
}

const typeFlags = { directory: '5', symlink: '2', extension: 'x' } as const;

/** A whole archive with one entry that has no content: what it takes to make a link or a directory with its owner. */
export function tarOf({ name, type, target, attributes }: TarEntry): Buffer {
  const records = [record('path', name), ...(target === undefined ? [] : [record('linkpath', target)])];
  const extension = Buffer.concat(records);
  return Buffer.concat([
    header('extension', 'entry', extension.length, {
      mode: 0o644,
      uid: 0,
      gid: 0,
      mtimeNs: 0n,
      extended: [],
    }),
    padded(extension),
    header(type, 'entry', 0, attributes),
    Buffer.alloc(2 * blockBytes),
  ]);
}

function header(
  type: keyof typeof typeFlags,
  name: string,
  sizeBytes: number,
  attributes: NodeAttributes,
): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, at: number, length: number) =>
    block.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at, 'latin1');
  block.write(name, 0, 'latin1');
  octal(attributes.mode & 0o7777, 100, 8);
  octal(attributes.uid, 108, 8);
  octal(attributes.gid, 116, 8);
  octal(sizeBytes, 124, 12);
  octal(Math.max(0, Number(attributes.mtimeNs / 1_000_000_000n)), 136, 12);
  block.write('        ', 148, 'latin1');
  block.write(typeFlags[type], 156, 'latin1');
  block.write('ustar\x0000', 257, 'latin1');
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  block.write(`${checksum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

/** `length key=value\n`, where the length counts its own digits too. */
function record(key: string, value: string): Buffer {
  const rest = Buffer.from(` ${key}=${value}\n`);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

const padded = (data: Buffer): Buffer =>
  Buffer.concat([data, Buffer.alloc((blockBytes - (data.length % blockBytes)) % blockBytes)]);
