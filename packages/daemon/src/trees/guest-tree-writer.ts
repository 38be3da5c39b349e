import { basename, dirname } from 'node:path/posix';
import type { FileContent, FilePiece, NodeAttributes, TreeWriter } from '@coppice/disks';
import { CoppiceError } from '@coppice/protocol';
import type { FileKind, Guest } from '@coppice/runtime';
import { type TarEntry, tarOf } from './tar-entry.ts';

const ownerOf = ({ uid, gid }: NodeAttributes): string => `${uid}:${gid}`;
const permissions = ({ mode }: NodeAttributes): number => mode & 0o7777;

/** Writes a merge into a sandbox that runs, through its agent: its processes see each file change as if one of them had done it. */
export class GuestTreeWriter implements TreeWriter {
  readonly #guest: Guest;
  /** Told after each change. */
  readonly #onWritten: () => Promise<void>;

  constructor(guest: Guest, onWritten: () => Promise<void>) {
    this.#guest = guest;
    this.#onWritten = onWritten;
  }

  async writeFile(path: string, content: FileContent, attributes: NodeAttributes): Promise<void> {
    const there = await this.#kindOf(path);
    if (there !== undefined && there !== 'file') await this.#guest.remove(path, { recursive: true });
    const options = { mode: permissions(attributes), owner: ownerOf(attributes), createParents: false };
    const extents = await content.extents();
    const pieces = content.pieces(extents);
    const heldBytes = extents.reduce((sum, { lengthBytes }) => sum + lengthBytes, 0);
    if (heldBytes === content.sizeBytes) await this.#guest.write(path, bytesOf(pieces), options);
    else await this.#guest.writePieces(path, content.sizeBytes, pieces, options);
    await this.setAttributes(path, attributes);
  }

  async makeSymlink(path: string, target: string, attributes: NodeAttributes): Promise<void> {
    if ((await this.#kindOf(path)) !== undefined) await this.#guest.remove(path, { recursive: true });
    await this.#unpack(path, { type: 'symlink', target, attributes });
    await this.setAttributes(path, attributes);
  }

  async makeDirectory(path: string, attributes: NodeAttributes): Promise<void> {
    const there = await this.#kindOf(path);
    if (there === 'directory') return;
    if (there !== undefined) await this.#guest.remove(path, { recursive: true });
    await this.#unpack(path, { type: 'directory', attributes });
    await this.setAttributes(path, attributes);
  }

  async remove(path: string): Promise<void> {
    await this.#guest.remove(path, { recursive: true }).catch(ignoreAbsent);
    await this.#onWritten();
  }

  async makeLink(path: string, existing: string): Promise<void> {
    if ((await this.#kindOf(path)) === 'directory') await this.#guest.remove(path, { recursive: true });
    await this.#guest.link(existing, path);
    await this.#onWritten();
  }

  async setAttributes(path: string, attributes: NodeAttributes): Promise<void> {
    await this.#guest.setAttributes(path, { ...attributes, mode: permissions(attributes) });
    await this.#onWritten();
  }

  async #unpack(path: string, entry: Omit<TarEntry, 'name'>): Promise<void> {
    const archive = tarOf({ ...entry, name: basename(path) });
    await this.#guest.unpack(dirname(path), once(archive));
  }

  async #kindOf(path: string): Promise<FileKind | undefined> {
    return (await this.#guest.stat(path).catch(ignoreAbsent))?.kind;
  }
}

async function* bytesOf(pieces: AsyncIterable<FilePiece>): AsyncIterable<Buffer> {
  for await (const { bytes } of pieces) yield bytes;
}

async function* once(data: Buffer): AsyncIterable<Buffer> {
  yield data;
}

const ignoreAbsent = (error: unknown): undefined => {
  if (error instanceof CoppiceError && error.code === 'not_found') return undefined;
  throw error;
};
