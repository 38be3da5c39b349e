import type { Cli } from '../cli.ts';

/** Says what a snapshot, a fork or a comparison is without. */
export const noteLeftOut = (cli: Cli, paths: readonly string[]): void => {
  for (const path of paths)
    cli.out.note(
      `${path} is a directory of this machine that is mounted there: it is shared, and not part of this`,
    );
};
