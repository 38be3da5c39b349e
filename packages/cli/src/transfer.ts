import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { defaultTakeOut, type Sandbox, type TakeOut } from '@coppice/sdk';
import type { Cli } from './cli.ts';
import type { Progress } from './ui/output.ts';

interface Copied {
  readonly files: number;
  readonly bytes: number;
}

/** Passes bytes on and says how many there were so far. */
export async function* counted(source: AsyncIterable<Uint8Array>, count: (bytes: number) => void) {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    count(bytes);
    yield chunk;
  }
}

/** Under another name until it is whole. Who may read the file may read what was in the sandbox. */
export const writeWhole = async (file: string, content: AsyncIterable<Uint8Array>): Promise<void> => {
  const partial = `${file}.${process.pid}.part`;
  try {
    await pipeline(content, createWriteStream(partial, { flags: 'wx', mode: 0o600 }));
    await rename(partial, file);
  } catch (error) {
    await rm(partial, { force: true });
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') {
      throw new CoppiceError('not_found', `the directory of ${file} does not exist`, {
        hint: 'Make it first, or name another file with --output.',
        cause: error,
      });
    }
    throw error;
  }
};

/** A file of this machine, or standard input. */
export const openSource = async (
  cli: Cli,
  file: string,
  otherwise: string,
): Promise<{ stream: AsyncIterable<Uint8Array>; sizeBytes: number | undefined }> => {
  if (file === '-') return { stream: cli.io.stdin as AsyncIterable<Uint8Array>, sizeBytes: undefined };
  const found = await stat(file).catch((cause: NodeJS.ErrnoException) => {
    throw new CoppiceError(
      'not_found',
      cause.code === 'ENOENT' ? `${file} does not exist` : `${file} cannot be read: ${cause.message}`,
      {
        hint: 'Check the path; nothing was imported.',
        cause,
      },
    );
  });
  if (!found.isFile())
    throw new CoppiceError('invalid_argument', `${file} is no file`, {
      hint: otherwise,
    });
  return { stream: createReadStream(file) as AsyncIterable<Uint8Array>, sizeBytes: found.size };
};

const hostKind = async (path: string): Promise<'file' | 'directory' | undefined> => {
  try {
    return (await stat(path)).isDirectory() ? 'directory' : 'file';
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
};

const guestKind = async (sandbox: Sandbox, path: string): Promise<'file' | 'directory' | undefined> => {
  try {
    const found = await sandbox.files.stat(path);
    // A link is what it leads to: a directory can be listed through it.
    if (found.kind !== 'symlink') return found.kind === 'directory' ? 'directory' : 'file';
    return (await sandbox.files.list(path, { limit: 1 }).catch(() => undefined)) ? 'directory' : 'file';
  } catch (error) {
    if (!(error instanceof CoppiceError) || error.code !== 'not_found') throw error;
    // Either the path or the sandbox itself is not there: the second is said as it is.
    await sandbox.inspect();
    return undefined;
  }
};

/** As cp does: into a directory that is there or that a trailing slash asks for, otherwise under that very name. */
const targetPath = (to: string, toKind: string | undefined, name: string): string =>
  toKind === 'directory' || to.endsWith('/') ? `${to.replace(/\/+$/, '')}/${name}` : to;

const missing = (where: string): CoppiceError =>
  new CoppiceError('not_found', `${where} does not exist`, { hint: 'Check the path; nothing was copied.' });

export const upload = async (cli: Cli, from: string, sandbox: Sandbox, to: string): Promise<Copied> => {
  const kind = await hostKind(from);
  if (kind === undefined) throw missing(from);
  const target = targetPath(to, await guestKind(sandbox, to), basename(from));
  return cli.out.during(`copying ${from}`, async (progress) => {
    if (kind === 'directory') {
      const { files, bytes } = await sandbox.files.uploadDirectory(from, target, {
        signal: cli.signal,
        onProgress: (state) => progress.update({ done: state.bytes, detail: state.path }),
      });
      return { files, bytes };
    }
    const { size, mode } = await stat(from);
    const content = counted(createReadStream(from), (done) => progress.update({ done, total: size }));
    const { bytes } = await sandbox.files.write(target, content, {
      mode: (mode & 0o777).toString(8).padStart(3, '0'),
      signal: cli.signal,
    });
    return { files: 1, bytes };
  });
};

export const download = async (
  cli: Cli,
  sandbox: Sandbox,
  from: string,
  to: string,
  takeOut: TakeOut,
): Promise<Copied> => {
  const kind = await guestKind(sandbox, from);
  if (kind === undefined) throw missing(`${sandbox.name}:${from}`);
  const target = targetPath(to, await hostKind(to), basename(from));
  return cli.out.during(`copying ${sandbox.name}:${from}`, async (progress) => {
    if (kind === 'directory') {
      return sandbox.files.downloadDirectory(from, target, {
        ...takeOut,
        signal: cli.signal,
        onProgress: (state) => progress.update({ done: state.bytes, detail: state.path }),
      });
    }
    const { maxBytes = defaultTakeOut.maxBytes } = takeOut;
    const bytes = await downloadFile(sandbox, from, target, progress, { signal: cli.signal, maxBytes });
    return { files: 1, bytes };
  });
};

/** Under another name until it is whole. */
const downloadFile = async (
  sandbox: Sandbox,
  from: string,
  to: string,
  progress: Progress,
  reading: { readonly signal: AbortSignal; readonly maxBytes: number },
): Promise<number> => {
  const { size_bytes: total, mode } = await sandbox.files.stat(from);
  await mkdir(dirname(to), { recursive: true });
  const partial = join(dirname(to), `.${basename(to)}.${process.pid}.part`);
  let bytes = 0;
  const content = counted(sandbox.files.readStream(from, reading), (done) => {
    bytes = done;
    progress.update({ done, total });
  });
  try {
    await pipeline(
      content,
      createWriteStream(partial, { mode: Number.parseInt(mode, 8) & 0o777, flags: 'wx' }),
    );
    await rename(partial, to);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
  return bytes;
};

export const copyBetween = async (
  cli: Cli,
  source: { readonly sandbox: Sandbox; readonly path: string },
  target: { readonly sandbox: Sandbox; readonly path: string },
): Promise<Copied> => {
  const kind = await guestKind(source.sandbox, source.path);
  if (kind === undefined) throw missing(`${source.sandbox.name}:${source.path}`);
  const to = targetPath(target.path, await guestKind(target.sandbox, target.path), basename(source.path));
  return cli.out.during(`copying ${source.sandbox.name}:${source.path}`, async (progress) => {
    const { signal } = cli;
    const count = (done: number) => progress.update({ done });
    if (kind === 'directory') {
      await target.sandbox.files.makeDirectory(to, { signal });
      const tar = Readable.from(counted(source.sandbox.files.archive(source.path, { signal }), count), {
        objectMode: false,
      });
      const { files, bytes } = await target.sandbox.files.unpack(to, tar, { signal });
      return { files, bytes };
    }
    const { mode } = await source.sandbox.files.stat(source.path);
    const content = counted(source.sandbox.files.readStream(source.path, { signal }), count);
    const { bytes } = await target.sandbox.files.write(to, content, { mode, signal });
    return { files: 1, bytes };
  });
};
