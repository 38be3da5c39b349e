import { chmodSync, chownSync, lutimesSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { mountPlaces } from '../../machine/mount-places.ts';
import { hostnameLink, hostsLink, synthesisedFiles } from '../host-etc.ts';
import type { ImageSettings } from '../oci/image-settings.ts';
import { imageUser } from './image-user.ts';
import type { LayerStack } from './layer-stack.ts';

/** The lowest of all layers, the same for every image. Grows a number when what is in it changes. */
export const groundName = 'ground-2';

const groundDirectories = [
  ...['proc', 'sys', 'dev', 'run', 'etc'].map((path) => ({ path, mode: 0o755, owner: 0 })),
  { path: 'tmp', mode: 0o1777, owner: 0 },
  { path: 'workspace', mode: 0o755, owner: 0 },
];

/** What every sandbox needs and many images lack: it shows where no layer of the image has something of that name. */
export async function ensureGround(layersDirectory: string): Promise<void> {
  const place = join(layersDirectory, groundName);
  if ((await stat(place).catch(() => undefined)) !== undefined) return;
  const building = join(layersDirectory, `.building-${process.pid}-${groundName}`);
  await rm(building, { recursive: true, force: true });
  await mkdir(building, { mode: 0o700 });
  await mkdir(join(building, 'fs'), { mode: 0o755 });
  for (const { path, mode, owner } of groundDirectories) {
    const directory = join(building, 'fs', path);
    mkdirSync(directory);
    chmodSync(directory, mode);
    chownSync(directory, owner, owner);
    lutimesSync(directory, 0, 0);
  }
  await rename(building, place);
}

/** Refuses an image whose own files stand where a sandbox mounts its filesystems. */
export function checkMountPoints(stack: LayerStack): void {
  for (const name of mountPlaces) {
    const [top] = stack.parts(name);
    if (top === undefined || top.stats.isDirectory()) continue;
    const kind = top.stats.isSymbolicLink() ? 'symlink' : 'file';
    throw new CoppiceError(
      'unsafe',
      `/${name} of the image is a ${kind}, where a sandbox mounts a filesystem of its own`,
      {
        hint: 'Nothing of it was kept. Build the image again with a directory there.',
      },
    );
  }
}

/**
 * The topmost layer of an image: what names other machines in /etc, and the directories that the overlay of the image's own
 * layers would show wrongly. It is no part of the image, and leaves it as it came when it is pushed on.
 */
export function makeRoof(
  directory: string,
  stack: LayerStack,
  { workingDir, user }: Pick<ImageSettings, 'workingDir' | 'user'> = {},
): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const made = new Set<string>(['']);
  const root = stack.directoryAttributes('');
  const attributes: { place: Buffer; path: string }[] = [];
  const make = (path: string): void => {
    if (made.has(path)) return;
    make(path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '');
    made.add(path);
    const place = Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(path, 'latin1')]);
    mkdirSync(place, { mode: 0o755 });
    attributes.push({ place, path });
  };
  for (const path of stack.wrongDirectories()) make(path);
  // Where an image says that its processes start, they do, whether or not a layer has it.
  const missing = workingDir === undefined ? undefined : missingDirectory(stack, workingDir);
  if (missing !== undefined) make(missing);
  const owner = user === undefined ? { uid: 0, gid: 0 } : imageUser(stack, user);
  // Git and others refuse a directory that is not of the user who works there; the ground's is root's.
  if (owner.uid !== 0 && stack.parts('workspace').length === 0) {
    mkdirSync(join(directory, 'workspace'), { mode: 0o755, recursive: true });
    chownSync(join(directory, 'workspace'), owner.uid, owner.gid);
  }
  const [etc] = stack.parts('etc');
  if (etc === undefined || etc.stats.isDirectory()) {
    make('etc');
    for (const [link, target] of [hostnameLink, hostsLink]) symlinkSync(target, join(directory, link));
    for (const { path, text, mode } of synthesisedFiles)
      if (path === 'etc/resolv.conf') writeFileSync(join(directory, path), text, { mode, flag: 'wx' });
  }
  for (const { place, path } of attributes.reverse()) {
    const stats = stack.directoryAttributes(path);
    if (stats !== undefined) copyAttributes(place, stats);
  }
  if (root !== undefined) copyAttributes(Buffer.from(directory), root);
}

/** The path in bytes where nothing is there and nothing is in the way; undefined where there is. */
function missingDirectory(stack: LayerStack, path: string): string | undefined {
  const names = Buffer.from(path)
    .toString('latin1')
    .split('/')
    .filter((name) => name !== '' && name !== '.');
  if (names.length === 0 || names.includes('..') || names.some((name) => name.length > 255)) return undefined;
  for (let depth = 1; depth <= names.length; depth += 1) {
    const [top] = stack.parts(names.slice(0, depth).join('/'));
    if (top === undefined) return names.join('/');
    if (!top.stats.isDirectory()) return undefined;
  }
  return undefined;
}

function copyAttributes(
  place: Buffer,
  stats: { uid: number; gid: number; mode: number; mtimeMs: number },
): void {
  chownSync(place, stats.uid, stats.gid);
  chmodSync(place, stats.mode & 0o7777);
  lutimesSync(place, stats.mtimeMs / 1000, stats.mtimeMs / 1000);
}
