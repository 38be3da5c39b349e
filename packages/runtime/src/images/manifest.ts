import { createHash } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { runProgram } from '../programs/run-program.ts';

export interface Manifest {
  readonly digest: string;
  readonly sizeBytes: number;
  readonly fileCount: number;
}

export interface ManifestOptions {
  /** Read every file; without it size and modification time stand for the content. */
  readonly content: boolean;
  readonly signal?: AbortSignal;
}

/** Files that are read before others have a turn. */
const turnEntries = 64;

interface Entry {
  readonly path: string;
  readonly type: string;
  readonly line: string;
  readonly inode: string;
  readonly sizeBytes: number;
}

/** One walk by `find` instead of a system call per file from here: ten times faster on a hundred thousand files. */
export async function readManifest(rootfs: string, options: ManifestOptions): Promise<Manifest> {
  const { stdout } = await runProgram(
    ['find', rootfs, '-xdev', '-printf', '%P\\0%y\\0%m\\0%U\\0%G\\0%s\\0%T@\\0%l\\0%i\\0'],
    { signal: options.signal },
  );
  const entries = parseEntries(stdout).sort((a, b) => (a.path < b.path ? -1 : 1));
  const hash = createHash('sha256');
  const seen = new Set<string>();
  let sizeBytes = 0;
  let fileCount = 0;
  let sinceTurn = 0;
  for (const entry of entries) {
    options.signal?.throwIfAborted();
    if (++sinceTurn % turnEntries === 0) await turn();
    hash.update(entry.line);
    if (entry.type !== 'f') continue;
    fileCount += 1;
    if (!seen.has(entry.inode)) sizeBytes += entry.sizeBytes;
    seen.add(entry.inode);
    if (options.content) hash.update(await hashFile(join(rootfs, entry.path), entry.sizeBytes));
  }
  return {
    digest: `${options.content ? 'sha256' : 'sha256-meta'}:${hash.digest('hex')}`,
    sizeBytes,
    fileCount,
  };
}

function parseEntries(text: string): Entry[] {
  const fields = text.split('\0');
  const entries: Entry[] = [];
  for (let i = 0; i + 8 < fields.length; i += 9) {
    const [path, type, mode, uid, gid, size, mtime, target, inode] = fields.slice(i, i + 9) as [
      string,
      string,
      string,
      string,
      string,
      string,
      string,
      string,
      string,
    ];
    // The size of a directory, and of the root its modification time, are of the filesystem that it lies on.
    const sized = type === 'f' ? size : '';
    const line = `${JSON.stringify([path, type, mode, uid, gid, sized, path === '' ? '' : mtime, target])}\n`;
    entries.push({ path, type, line, inode, sizeBytes: Number(size) });
  }
  return entries;
}

/** Small files at once: opening a stream for each costs more than reading them. */
const smallBytes = 1 << 20;

async function hashFile(path: string, sizeBytes: number): Promise<Buffer> {
  const hash = createHash('sha256');
  if (sizeBytes <= smallBytes) return hash.update(readFileSync(path)).digest();
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer);
  return hash.digest();
}
