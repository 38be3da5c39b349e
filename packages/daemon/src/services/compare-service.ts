import { CoppiceError, type Diff, type fileDiffSchema } from '@coppice/protocol';
import type { z } from 'zod';
import { assertSameImage, type TreeAccess } from './tree-access.ts';

/** What differs between any two of: a snapshot, a sandbox as it is now. */
export class CompareService {
  readonly #trees: TreeAccess;

  constructor(trees: TreeAccess) {
    this.#trees = trees;
  }

  async diff(from: string, to: string, _limit: number, _signal?: AbortSignal): Promise<Diff> {
    return this.#refuse(from, to);
  }

  async diffFile(from: string, to: string, _path: string): Promise<z.output<typeof fileDiffSchema>> {
    return this.#refuse(from, to);
  }

  #refuse(from: string, to: string): Promise<never> {
    return this.#trees.with(from, (before) =>
      this.#trees.with(to, async (after) => {
        assertSameImage(before, after);
        throw new CoppiceError('unsupported', `${from} and ${to} cannot be compared yet`);
      }),
    );
  }
}
