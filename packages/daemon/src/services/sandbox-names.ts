import { randomInt } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import type { State } from '../db/state.ts';

const moods = [
  'brisk',
  'calm',
  'clever',
  'eager',
  'fair',
  'gentle',
  'keen',
  'lucid',
  'merry',
  'nimble',
  'plain',
  'quick',
  'quiet',
  'rapid',
  'sharp',
  'sleek',
  'solid',
  'spry',
  'sunny',
  'swift',
  'tidy',
  'vivid',
  'warm',
  'wise',
];
const trees = [
  'alder',
  'apple',
  'ash',
  'aspen',
  'beech',
  'birch',
  'cedar',
  'cherry',
  'elder',
  'elm',
  'fir',
  'hazel',
  'holly',
  'larch',
  'lime',
  'maple',
  'oak',
  'olive',
  'pear',
  'pine',
  'plum',
  'rowan',
  'willow',
  'yew',
];

const pick = (words: readonly string[]): string => words[randomInt(words.length)]!;

/** A name that is free; what two callers might pick at once, the database settles. */
export function freshName(state: State): string {
  for (;;) {
    const name = `${pick(moods)}-${pick(trees)}-${randomInt(36 ** 3)
      .toString(36)
      .padStart(3, '0')}`;
    if (state.sandboxes.byName(name) === undefined) return name;
  }
}

export function assertNameFree(state: State, name: string): void {
  if (state.sandboxes.byName(name) === undefined) return;
  throw new CoppiceError('name_taken', `there is already a sandbox named ${name}`, {
    hint: 'Choose another name, or remove that one with `coppice rm`.',
  });
}

/** What a name becomes as a hostname: lower case, letters, digits and hyphens. */
export const hostnameOf = (name: string): string =>
  name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63) || 'sandbox';
