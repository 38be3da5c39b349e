import { fileURLToPath } from 'node:url';
import { skipFor } from './skip-for.ts';

/** A program of native/ as it is installed: static, so that it runs in any sandbox. */
export const installedProgram = (name: `coppice-${string}`): string =>
  fileURLToPath(new URL(`../../../native/build/${name}`, import.meta.url));

/**
 * A program of native/ that runs on this machine and not in an image. The tests of the project `sanitized` get those that
 * are built with AddressSanitizer and UBSan.
 */
export const guestProgram = (name: `coppice-${string}`): string => {
  const directory = process.env.COPPICE_GUEST_PROGRAMS;
  return directory === undefined ? installedProgram(name) : `${directory}/${name}`;
};

/** For tests that measure the memory of a program. */
export const whereMemoryIsFreed = skipFor(
  process.env.COPPICE_GUEST_PROGRAMS === undefined ? undefined : 'sanitizers keep freed memory aside',
);
