import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol';
import type { UnpackOptions } from '@coppice/runtime';
import { pack } from 'tar-stream';

export interface CopyItem {
  /** Below what is copied; empty for a file that is copied itself. */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'link' | 'fifo';
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtime: Date;
  readonly size: number;
  /** Of a hard link: below what is copied too. */
  readonly link: string;
  content(): AsyncIterable<Uint8Array>;
}

/** Where COPY takes files from: the context, another stage, an image. */
export interface CopySource {
  /** What a pattern stands for, in the order of names. */
  find(pattern: string): Promise<string[]>;
  /** A link is what it leads to. */
  isDirectory(path: string): Promise<boolean>;
  items(path: string): AsyncIterable<CopyItem>;
  /** Whether an item without a path says what the directory that is copied into becomes. */
  readonly describesTop?: boolean;
}

export interface CopyTarget {
  isDirectory(path: string): Promise<boolean>;
  /** Below a directory, which is made where there is none. */
  unpack(directory: string, tar: AsyncIterable<Uint8Array>, options?: UnpackOptions): Promise<void>;
}

export interface CopyOptions {
  /** In place of the owner that it has at its source. */
  readonly owner?: { readonly uid: number; readonly gid: number } | undefined;
  readonly mode?: number | undefined;
}

/** Copies as Docker does: what is in a directory, a file under another name or into a directory. `to` is absolute. */
export async function copyFiles(
  sources: readonly { readonly source: CopySource; readonly path: string }[],
  to: string,
  target: CopyTarget,
  options: CopyOptions,
): Promise<void> {
  const intoDirectory = to.endsWith('/') || sources.length > 1;
  const directory = posix.normalize(to).replace(/(.)\/$/, '$1');
  for (const { source, path } of sources) {
    if (await source.isDirectory(path)) {
      await makeOwned(directory, target, options);
      const tar = tarOf(source.items(path), source.describesTop === true ? '.' : '', options);
      // Directories below that are there already become those that are copied, as with other tools.
      await target.unpack(directory, tar, { replaceAttributes: true });
      continue;
    }
    const isInto = intoDirectory || (await target.isDirectory(directory));
    const name = isInto ? posix.basename(path) : posix.basename(directory);
    const parent = isInto ? directory : posix.dirname(directory);
    await makeOwned(parent, target, options);
    await target.unpack(parent, tarOf(source.items(path), name, options));
  }
}

/** A directory that is made for what is copied belongs to the owner that it gets. */
async function makeOwned(directory: string, target: CopyTarget, { owner }: CopyOptions): Promise<void> {
  if (owner === undefined || directory === '/' || (await target.isDirectory(directory))) return;
  const item: CopyItem = {
    ...{ path: '', type: 'directory', mode: 0o755, ...owner, mtime: new Date(0), size: 0, link: '' },
    content: () => Readable.from([]),
  };
  const items = Readable.from([item]) as AsyncIterable<CopyItem>;
  await target.unpack(posix.dirname(directory), tarOf(items, posix.basename(directory), {}));
}

/** Items as a tar, below a name or under it. */
async function* tarOf(
  items: AsyncIterable<CopyItem>,
  name: string,
  { owner, mode }: CopyOptions,
): AsyncGenerator<Buffer, void, undefined> {
  const packing = pack();
  const writing = (async () => {
    for await (const item of items) {
      const path = [name, item.path].filter((part) => part !== '').join('/');
      if (path === '') continue;
      const isLink = item.type === 'symlink' || item.type === 'link';
      const header = {
        name: path,
        type: item.type,
        mode: mode === undefined || isLink ? item.mode : mode,
        uid: owner?.uid ?? item.uid,
        gid: owner?.gid ?? item.gid,
        mtime: item.mtime,
        ...(isLink
          ? { linkname: item.type === 'link' && name !== '' ? `${name}/${item.link}` : item.link }
          : {}),
        size: item.size,
      };
      if (item.type !== 'file' || item.size === 0)
        await new Promise<void>((resolve, reject) => {
          packing.entry({ ...header, size: 0 }, '', (error) => (error ? reject(error) : resolve()));
        });
      else await pipeline(item.content(), packing.entry(header) as unknown as NodeJS.WritableStream);
    }
    packing.finalize();
  })();
  writing.catch((error: Error) => packing.destroy(error));
  try {
    yield* packing as unknown as Readable as AsyncIterable<Buffer>;
    await writing;
  } finally {
    packing.destroy();
  }
}

/** `user`, `user:group`, or numbers; names are those of the image's own accounts. */
export function parseOwner(
  text: string,
  accounts: { readonly passwd: string; readonly group: string },
): { uid: number; gid: number } {
  const [user = '', group] = text.split(':');
  const lines = (file: string): string[][] => file.split('\n').map((line) => line.split(':'));
  const account = lines(accounts.passwd).find(([name, , uid]) => name === user || uid === user);
  const isNumber = (word: string): boolean => /^\d{1,10}$/.test(word);
  const uid = isNumber(user) ? Number(user) : Number(account?.[2] ?? Number.NaN);
  const found = group === undefined ? undefined : lines(accounts.group).find(([name]) => name === group);
  const gid =
    group === undefined
      ? Number(account?.[3] ?? (isNumber(user) ? user : Number.NaN))
      : isNumber(group)
        ? Number(group)
        : Number(found?.[2] ?? Number.NaN);
  if (Number.isInteger(uid) && Number.isInteger(gid)) return { uid, gid };
  throw new CoppiceError('invalid_argument', `the image has no account or group ${text}`, {
    hint: 'Make it with a RUN before, or give numbers: --chown=1000:1000',
  });
}
