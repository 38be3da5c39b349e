import { bytesOfText } from './path-text.ts';

const slash = '/'.charCodeAt(0);

const isSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdfff;

const componentAt = (path: string, at: number): string => {
  const end = path.indexOf('/', at);
  return path.slice(path.lastIndexOf('/', at - 1) + 1, end < 0 ? undefined : end);
};

/**
 * The order in which trees are walked: what holds something before what it holds, names beside each other in the order of
 * their bytes.
 */
export const comparePaths = (one: string, other: string): number => {
  const shorter = Math.min(one.length, other.length);
  let at = 0;
  while (at < shorter && one.charCodeAt(at) === other.charCodeAt(at)) at += 1;
  if (at === shorter) return one.length - other.length;
  const [oneCode, otherCode] = [one.charCodeAt(at), other.charCodeAt(at)];
  if (oneCode === slash) return -1;
  if (otherCode === slash) return 1;
  if (!isSurrogate(oneCode) && !isSurrogate(otherCode)) return oneCode - otherCode;
  return Buffer.compare(bytesOfText(componentAt(one, at)), bytesOfText(componentAt(other, at)));
};

export const isBelow = (path: string, directory: string): boolean =>
  directory === '' || (path.startsWith(directory) && path.charCodeAt(directory.length) === slash);
