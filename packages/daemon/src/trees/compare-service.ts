import { diffTrees, type PoolServer, TextDiffer, type TreeChange, unifiedDiff } from '@coppice/disks';
import type { Change, Diff, fileDiffSchema } from '@coppice/protocol';
import type { z } from 'zod';
import { assertSameImage, type TreeAccess } from './tree-access.ts';

const octal = (mode: number | null): string | null =>
  mode === null ? null : mode.toString(8).padStart(4, '0');

const changeView = (change: TreeChange): Change => ({
  path: change.path,
  change: change.change,
  kind: change.kind,
  size_before: change.sizeBefore,
  size_after: change.sizeAfter,
  mode_before: octal(change.modeBefore),
  mode_after: octal(change.modeAfter),
});

/** More of them make an answer that takes long to write and to read. A sandbox decides how long its paths are. */
const mostChars = 16 * 1024 ** 2;

/** The first changes of many, and how many there are of each kind. */
export class ChangeList {
  readonly #changes: Change[] = [];
  readonly #summary = { added: 0, removed: 0, modified: 0, mode: 0 };
  readonly #limit: number;
  #chars = 0;
  #truncated = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(change: TreeChange): void {
    this.#summary[change.change] += 1;
    this.#chars += change.path.length;
    this.#truncated ||= this.#changes.length === this.#limit || this.#chars > mostChars;
    if (!this.#truncated) this.#changes.push(changeView(change));
  }

  view(): Pick<Diff, 'changes' | 'summary' | 'truncated'> {
    return { changes: this.#changes, summary: this.#summary, truncated: this.#truncated };
  }
}

/** What differs between any two of: a snapshot, a sandbox as it is now. */
export class CompareService {
  readonly #trees: TreeAccess;
  readonly #server: PoolServer;
  readonly #differ = new TextDiffer();

  constructor(trees: TreeAccess, server: PoolServer) {
    this.#trees = trees;
    this.#server = server;
  }

  async diff(
    from: string,
    to: string,
    { limit, path }: { readonly limit: number; readonly path?: string | undefined },
    signal?: AbortSignal,
  ): Promise<Diff> {
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const options = {
        ...(signal === undefined ? {} : { signal }),
        ...(path === undefined ? {} : { path }),
      };
      const list = new ChangeList(limit);
      const server = this.#server.until(signal);
      for await (const change of diffTrees(server, before.tree, after.tree, options)) list.add(change);
      const leftOut = new Set([...before.mounted, ...after.mounted]);
      return { from, to, ...list.view(), left_out: [...leftOut] };
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
      const [directory, binary] = [result === 'directory', result === 'binary'];
      return { path, directory, binary, unified: text, truncated: result === 'too_large' };
    });
  }
}
