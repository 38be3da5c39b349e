import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isAlive } from './intent.ts';
import type { WorkspaceLayout } from './layout.ts';

/** The files that a coppice-tree was writing when it ended: it names them after itself. On a full disk they matter. */
export const sweepTemporaries = (layout: WorkspaceLayout, ended?: number): void => {
  for (const name of readdirSync(layout.temporary)) {
    const pid = Number(/^new-(\d+)-\d+$/.exec(name)?.[1] ?? Number.NaN);
    if (pid === ended || (Number.isInteger(pid) && !isAlive(pid)))
      rmSync(join(layout.temporary, name), { force: true });
  }
};
