/** Written by the holder once its memory is full. */
export const readyFile = '/var/tmp/holder-is-ready';

/**
 * One process with this much of random bytes in memory: dd fills its one block and then waits for ever on a pipe that
 * nobody empties. Random, as pages of zeros would not be kept.
 */
export const holdMemoryCommand = (sizeMb: number): string =>
  `dd if=/dev/urandom bs=${sizeMb}M count=1 iflag=fullblock status=none | { head -c 1 >${readyFile}; sleep 1000000; }`;
