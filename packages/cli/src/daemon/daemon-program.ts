import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';

const bundle = join('dist', 'daemon.mjs');
const source = join('packages', 'daemon', 'src', 'main.ts');

/** The daemon beside this very command: a bundle starts a bundle, sources start sources. */
export const findDaemonProgram = (from = import.meta.filename): string => {
  const wanted = from.endsWith('.ts') ? source : bundle;
  for (let directory = dirname(from); ; directory = dirname(directory)) {
    const path = join(directory, wanted);
    if (existsSync(path)) return path;
    if (directory === dirname(directory)) break;
  }
  throw new CoppiceError('unavailable', `the daemon's program, ${wanted}, is not there`, {
    hint: 'Run `npm run build` in the checkout.',
  });
};
