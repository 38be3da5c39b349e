import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestOptions } from 'vitest';
import { skipFor } from './skip-for.ts';

/** Makes one in a file. */
export const makers = {
  btrfs: ['mkfs.btrfs', '-q'],
  xfs: ['mkfs.xfs', '-q', '-m', 'reflink=1'],
  ext4: ['mkfs.ext4', '-q', '-F'],
} as const;

export type MountableKind = keyof typeof makers;

/** Enough for each of them. */
const sizeBytes = 320 << 20;
const known = new Map<MountableKind, string | undefined>();

/** Why a filesystem of this kind cannot be made in a file and mounted on this machine, by doing it once. */
export const whyNotMountable = (kind: MountableKind): string | undefined => {
  if (!known.has(kind)) known.set(kind, tryToMount(kind));
  return known.get(kind);
};

const tryToMount = (kind: MountableKind): string | undefined => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-mountable-'));
  const [image, place] = [join(directory, 'image'), join(directory, 'mounted')];
  const run = (command: string, ...args: string[]): void =>
    void execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  try {
    writeFileSync(image, '');
    truncateSync(image, sizeBytes);
    mkdirSync(place);
    const [maker, ...options] = makers[kind];
    run(maker, ...options, image);
    run('mount', '-t', kind, '-o', 'loop', image, place);
    run('umount', place);
    return undefined;
  } catch (error) {
    const words = (error as Error).message.trim().split('\n').at(-1);
    return `${kind} cannot be mounted on this machine: ${words}`;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
};

export const canMount = (kind: MountableKind): boolean => whyNotMountable(kind) === undefined;

/** Options for tests that cannot do without them. */
export const whereMounts = (...kinds: readonly MountableKind[]): TestOptions =>
  skipFor(kinds.map(whyNotMountable).find((reason) => reason !== undefined));
