import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';
import type { Image } from './image.ts';
import { ImageDirectory } from './image-directory.ts';

export interface ImageShelfOptions {
  readonly directory: string;
  readonly newId: () => string;
  readonly now: () => Date;
}

/** The records of all images of a home: how one is found, and who is making which name right now. */
export class ImageShelf {
  readonly directory: ImageDirectory;
  readonly newId: () => string;
  readonly #now: () => Date;
  /** Names that are being made: whoever asks for one meanwhile can wait for the same work. */
  readonly #making = new Map<string, Promise<Image>>();

  constructor(options: ImageShelfOptions) {
    this.directory = new ImageDirectory(options.directory);
    this.newId = options.newId;
    this.#now = options.now;
  }

  now(): string {
    return this.#now().toISOString();
  }

  /** In the order in which they were made. */
  list(): Promise<Image[]> {
    return this.directory.list();
  }

  /** By id or name; a name without a tag is also that of the tag `latest`. */
  async find(nameOrId: string): Promise<Image | undefined> {
    const images = await this.list();
    const known = (wanted: string | undefined): Image | undefined =>
      images.find((image) => image.id === wanted || image.name === wanted);
    return known(nameOrId) ?? known(familiarName(nameOrId));
  }

  async get(nameOrId: string): Promise<Image> {
    const image = await this.find(nameOrId);
    if (image !== undefined) return image;
    throw new CoppiceError('not_found', `there is no image ${JSON.stringify(nameOrId.slice(0, 80))}`, {
      hint: 'See `coppice images`; get one with `coppice images pull` or `import`, or use `host` or `debian:<suite>`.',
    });
  }

  /** The work that makes this name right now, where there is any. */
  making(name: string): Promise<Image> | undefined {
    return this.#making.get(name);
  }

  /** Refused while somebody else makes the same name. */
  exclusively(name: string, work: () => Promise<Image>): Promise<Image> {
    if (this.#making.has(name)) return Promise.reject(nameTaken(name));
    const made = work().finally(() => this.#making.delete(name));
    this.#making.set(name, made);
    return made;
  }

  /** Its name goes to another image; from now on it is found by its digest. */
  async giveUpName(image: Image | undefined): Promise<void> {
    if (image !== undefined) await this.directory.rewrite({ ...image, name: nameByDigest(image) });
  }
}

/** As images of registries are named here; undefined for what cannot be one. */
export function familiarName(text: string): string | undefined {
  try {
    return formatImageReference(parseImageReference(text));
  } catch {
    return undefined;
  }
}

function nameByDigest({ id, name, source, layers, digest }: Image): string {
  if (layers === undefined) return `${name.slice(0, 30).replace(/:.*$/, '')}-${id.slice(-12)}`;
  const { registry, repository } = parseImageReference(source.kind === 'registry' ? source.reference : name);
  return formatImageReference({
    registry,
    repository,
    digest: source.kind === 'registry' ? source.digest : digest,
  });
}

export const nameTaken = (name: string): CoppiceError =>
  new CoppiceError('name_taken', `there is already an image named ${name}, or it is being made`);

/** What somebody who asked for an image is told when making it failed. */
export function buildFailure(name: string, error: unknown): unknown {
  const { code, name: kind } = error as NodeJS.ErrnoException;
  if (kind === 'AbortError')
    return new CoppiceError('cancelled', `making the image ${name} was cancelled`, { cause: error });
  const full =
    code === 'ENOSPC' || code === 'EDQUOT' || (error as Error).message.includes('No space left on device');
  if (!full) return error;
  return new CoppiceError('no_space', `there is no space left to make the image ${name}`, { cause: error });
}
