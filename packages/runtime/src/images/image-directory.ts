import { mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../programs/run-program.ts';
import type { Image } from './image.ts';
import { describeDocument, parseImageConfig, parseManifest } from './oci/image-manifest.ts';
import type { ImageDocuments } from './oci/pull-image.ts';

const buildingPrefix = '.building-';
const removingPrefix = '.removing-';

/**
 * The directory that holds images: `<id>/image.json` and `<id>/rootfs`. An image appears by one rename when it is
 * whole and goes by one rename before it is deleted; what a crash left is under a name that no reader looks at.
 */
export class ImageDirectory {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  rootfs(id: string): string {
    return join(this.path, id, 'rootfs');
  }

  /**
   * A directory to build in; its name tells which process owns it. It stays closed to other accounts of the machine
   * after publishing: a program in an image that is set-uid root must not be within their reach.
   */
  async makeBuilding(id: string): Promise<string> {
    const building = join(this.path, `${buildingPrefix}${process.pid}-${id}`);
    await mkdir(building, { recursive: true, mode: 0o700 });
    return building;
  }

  /** Its files, and the layers that it stands on, are on the disk before it is there: a loss of power leaves all of it or none. */
  async publish(building: string, image: Image): Promise<void> {
    await writeFile(join(building, 'image.json'), `${JSON.stringify(image, null, 2)}\n`);
    await runProgram(['sync', '--file-system', '--', building]);
    await rename(building, join(this.path, image.id));
    await using directory = await open(this.path, 'r');
    await directory.sync();
  }

  /** Gives an image that is there another record. */
  async rewrite(image: Image): Promise<void> {
    const file = join(this.path, image.id, 'image.json');
    await writeFile(`${file}.new`, `${JSON.stringify(image, null, 2)}\n`, { flush: true });
    await rename(`${file}.new`, file);
  }

  /** Of an image that is made of layers. */
  async readDocuments(id: string): Promise<ImageDocuments> {
    const read = (name: string): Promise<Buffer> => readFile(join(this.path, id, name));
    const [manifestBytes, configBytes] = await Promise.all([read('manifest.json'), read('config.json')]);
    const parsed = parseManifest(manifestBytes, undefined);
    if (!('manifest' in parsed)) throw corrupt(join(this.path, id, 'manifest.json'));
    const { manifest } = parsed;
    const config = parseImageConfig(configBytes, manifest);
    const { digest } = describeDocument(manifest.mediaType ?? '', manifestBytes);
    return { digest, manifest, manifestBytes, config, configBytes };
  }

  async list(): Promise<Image[]> {
    const names = await readdir(this.path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    const images: Image[] = [];
    for (const name of names.sort()) {
      if (!name.startsWith('img_')) continue;
      const image = await this.#read(name);
      if (image !== undefined) images.push(image);
    }
    return images;
  }

  /** Undefined when it was removed between listing and reading. */
  async #read(id: string): Promise<Image | undefined> {
    const file = join(this.path, id, 'image.json');
    let text: string;
    try {
      text = await readFile(file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
    try {
      const image = JSON.parse(text) as Image;
      if (image.id === id && typeof image.name === 'string') return image;
    } catch (cause) {
      throw corrupt(file, cause);
    }
    throw corrupt(file);
  }

  /** False when there was none. */
  async remove(id: string): Promise<boolean> {
    const removing = join(this.path, `${removingPrefix}${process.pid}-${id}`);
    try {
      await rename(join(this.path, id), removing);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
    await rm(removing, { recursive: true, force: true });
    return true;
  }

  /** Deletes what processes that are gone left half made or half removed. */
  async sweep(): Promise<void> {
    await mkdir(this.path, { recursive: true, mode: 0o755 });
    for (const name of await readdir(this.path)) {
      const owner = new RegExp(`^(?:\\${buildingPrefix}|\\${removingPrefix})(\\d+)-`).exec(name)?.[1];
      if (owner === undefined || isAlive(Number(owner))) continue;
      await rm(join(this.path, name), { recursive: true, force: true });
    }
  }
}

const corrupt = (file: string, cause?: unknown): CoppiceError =>
  new CoppiceError('corrupt', `${file} does not describe an image`, {
    hint: 'Move the directory of this image away, then import or build the image again.',
    cause,
  });

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
