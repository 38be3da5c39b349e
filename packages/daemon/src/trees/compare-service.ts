import {
  diffTrees,
  GitPatch,
  type PoolServer,
  TextDiffer,
  type TreeChange,
  unifiedDiff,
} from '@coppice/disks';
import {
  type Change,
  CoppiceError,
  type Diff,
  type fileDiffQuery,
  type fileDiffSchema,
  type Patch,
} from '@coppice/protocol';
import type { z } from 'zod';
import { outermost, type PathChoice, PathFilter } from './path-filter.ts';
import { assertSameImage, type Side, type TreeAccess } from './tree-access.ts';

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

/** The lines of a text that fit. */
const wholeLines = (text: string, maxBytes = Number.POSITIVE_INFINITY): string => {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  const bytes = Buffer.from(text).subarray(0, maxBytes);
  return bytes.subarray(0, bytes.lastIndexOf('\n') + 1).toString();
};

const mountedOf = (before: Side, after: Side): string[] => [
  ...new Set([...before.mounted, ...after.mounted]),
];

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
    { limit, path, exclude }: PathChoice & { readonly limit: number },
    signal?: AbortSignal,
  ): Promise<Diff> {
    const filter = new PathFilter({ exclude });
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const list = new ChangeList(limit);
      for await (const change of this.#changes(before, after, path, signal))
        if (filter.has(change.path)) list.add(change);
      return { from, to, ...list.view(), left_out: mountedOf(before, after) };
    });
  }

  /** All of it or nothing: a patch that is cut would be taken for a whole one. */
  async patch(from: string, to: string, { path, exclude }: PathChoice, signal?: AbortSignal): Promise<Patch> {
    const filter = new PathFilter({ exclude });
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const tools = { server: this.#server.until(signal), differ: this.#differ };
      const top = path?.length === 1 ? path[0]! : '/';
      const patches = new GitPatch(tools, before.tree, after.tree, top);
      const parts: string[] = [];
      const missing: Patch['missing'] = [];
      let chars = 0;
      for await (const change of this.#changes(before, after, path, signal)) {
        if (!filter.has(change.path)) continue;
        const made = await patches.of(change, signal);
        if (made === undefined) continue;
        if ('gap' in made) missing.push({ path: change.path, reason: made.gap });
        else parts.push(made.text);
        chars += 'gap' in made ? change.path.length : made.text.length;
        if (chars > mostChars)
          throw new CoppiceError('too_large', `the patch has more than ${mostChars / 1024 ** 2} MiB`, {
            hint: 'Ask for some paths only, or leave some out with exclude.',
          });
      }
      return { patch: parts.join(''), files: parts.length, missing, left_out: mountedOf(before, after) };
    });
  }

  async *#changes(
    before: Side,
    after: Side,
    paths: readonly string[] = ['/'],
    signal: AbortSignal | undefined,
  ): AsyncGenerator<TreeChange> {
    const server = this.#server.until(signal);
    for (const path of outermost(paths))
      yield* diffTrees(server, before.tree, after.tree, {
        path,
        ...(signal === undefined ? {} : { signal }),
      });
  }

  async diffFile(
    from: string,
    to: string,
    { path, max_bytes }: Omit<z.output<typeof fileDiffQuery>, 'from' | 'to'>,
    signal?: AbortSignal,
  ): Promise<z.output<typeof fileDiffSchema>> {
    return this.#trees.withBoth(from, to, signal, async (before, after) => {
      assertSameImage(before, after);
      const tools = { server: this.#server.until(signal), differ: this.#differ };
      const options = signal === undefined ? {} : { signal };
      const { result, text } = await unifiedDiff(tools, before.tree, after.tree, path, options);
      const [directory, binary] = [result === 'directory', result === 'binary'];
      const unified = wholeLines(text, max_bytes);
      const truncated = result === 'too_large' || unified.length < text.length;
      return { path, directory, binary, unified, truncated };
    });
  }
}
