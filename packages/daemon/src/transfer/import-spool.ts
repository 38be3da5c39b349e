import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { damagedFile, ExportFile } from './export-file.ts';
import {
  digestBytes,
  type ExportForm,
  exportMagic,
  exportMagicPrefix,
  firstExportMagic,
} from './export-format.ts';

/** Where files that are being imported lie until they are known to be whole. */
export class ImportSpool {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** What an earlier daemon left is of no use to anybody. */
  static open(directory: string): ImportSpool {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(directory))
      rmSync(join(directory, name), { recursive: true, force: true });
    return new ImportSpool(directory);
  }

  /** Runs with the file once all of it is here and matches its own digest; afterwards it is gone. */
  async with<T>(stream: AsyncIterable<Uint8Array>, work: (file: ExportFile) => Promise<T>): Promise<T> {
    const path = join(this.#directory, randomBytes(12).toString('hex'));
    try {
      return await work(new ExportFile(path, await receive(stream, path)));
    } finally {
      await rm(path, { force: true });
    }
  }
}

interface Received {
  readonly sizeBytes: number;
  readonly form: ExportForm;
}

async function receive(stream: AsyncIterable<Uint8Array>, path: string): Promise<Received> {
  const file = await open(path, 'wx', 0o600);
  try {
    return await receiveInto(file, stream);
  } catch (error) {
    const { code, errno } = error as NodeJS.ErrnoException;
    // Node has no name for a used-up quota.
    if (code !== 'ENOSPC' && errno !== -122) throw error;
    throw new CoppiceError('no_space', 'the file does not fit on the disk that the home is on', {
      hint: 'Nothing was imported. Delete snapshots or images, or give the home a larger disk.',
      cause: error,
    });
  } finally {
    await file.close();
  }
}

async function receiveInto(file: FileHandle, stream: AsyncIterable<Uint8Array>): Promise<Received> {
  const whole = createHash('sha256');
  /** The last bytes so far: the digest, if the stream ends now. */
  let tail = Buffer.alloc(0);
  let sizeBytes = 0;
  let form: ExportForm = 2;
  for await (const chunk of stream) {
    const begun = sizeBytes < exportMagic.length;
    sizeBytes += chunk.length;
    const held = Buffer.concat([tail, chunk]);
    if (begun) form = formOf(held.subarray(0, exportMagic.length));
    const cut = Math.max(0, held.length - digestBytes);
    whole.update(held.subarray(0, cut));
    tail = held.subarray(cut);
    for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten;
  }
  if (sizeBytes < exportMagic.length + digestBytes) throw damagedFile('it is too short');
  if (!whole.digest().equals(tail)) throw damagedFile('its digest does not match');
  return { sizeBytes, form };
}

/** Of as much as came so far; while it is shorter than the digest, nothing of it was cut off the front. */
function formOf(head: Buffer): ExportForm {
  if (head.equals(exportMagic.subarray(0, head.length))) return 2;
  if (head.equals(firstExportMagic.subarray(0, head.length))) return 1;
  const prefix = exportMagicPrefix.subarray(0, head.length);
  if (head.subarray(0, exportMagicPrefix.length).equals(prefix))
    throw new CoppiceError('unsupported', 'the file has a form that this version of Coppice does not know', {
      hint: 'Nothing was written. Update Coppice, or export again with this version.',
    });
  throw new CoppiceError('invalid_argument', 'this is not a file that `coppice export` wrote', {
    hint: 'Nothing was written. A tar becomes an image with `coppice images import`.',
  });
}
