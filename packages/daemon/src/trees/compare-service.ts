import type { Change, Diff, fileDiffSchema } from '@coppice/protocol';
import { diffTrees, type PoolServer, TextDiffer, type TreeChange, unifiedDiff } from '@coppice/store';
import type { z } from 'zod';
import { assertSameImage, type TreeAccess } from './tree-access.ts';

const octal = (mode: number | null): string | null =>
  mode === null ? null : mode.toString(8).padStart(4, '0');

export const changeView = (change: TreeChange): Change => ({
  path: change.path,
  change: change.change,
  kind: change.kind,
  size_before: change.sizeBefore,
  size_after: change.sizeAfter,
  mode_before: octal(change.modeBefore),
  mode_after: octal(change.modeAfter),
});

/** What differs between any two of: a snapshot, a sandbox as it is now. */
export class CompareService {
  readonly #trees: TreeAccess;
  readonly #server: PoolServer;
  readonly #differ = new TextDiffer();

  constructor(trees: TreeAccess, server: PoolServer) {
    this.#trees = trees;
    this.#server = server;
  }

  async diff(from: string, to: string, limit: number, signal?: AbortSignal): Promise<Diff> {
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const changes: Change[] = [];
      const summary = { added: 0, removed: 0, modified: 0, mode: 0 };
      const options = signal === undefined ? {} : { signal };
      const server = this.#server.until(signal);
      for await (const change of diffTrees(server, before.tree, after.tree, options)) {
        summary[change.change] += 1;
        if (changes.length < limit) changes.push(changeView(change));
      }
      const total = summary.added + summary.removed + summary.modified + summary.mode;
      return { from, to, changes, truncated: total > changes.length, summary };
    });
  }

  async diffFile(
    from: string,
    to: string,
    path: string,
    signal?: AbortSignal,
  ): Promise<z.output<typeof fileDiffSchema>> {
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const tools = { server: this.#server.until(signal), differ: this.#differ };
      const options = signal === undefined ? {} : { signal };
      const { result, text } = await unifiedDiff(tools, before.tree, after.tree, path, options);
      return { path, binary: result === 'binary', unified: text, truncated: result === 'too_large' };
    });
  }
}
