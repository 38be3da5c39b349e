import type { LayeredTree, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { bytesOfText } from './path-text.ts';
import type { TextDiffer } from './text-differ.ts';
import { type TreeNode, TreeView } from './tree-view.ts';
import { contentOf } from './unified-diff.ts';

/** Why a change is in no patch. */
export type PatchGap = 'binary' | 'too_large' | 'mode' | 'kind' | 'name';

export type FilePatch = { readonly text: string } | { readonly gap: PatchGap } | undefined;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** As git shows it: one bit of the mode is all that it keeps. */
const modeOf = ({ entry }: TreeNode): string => {
  if (entry.kind === 'symlink') return '120000';
  return (entry.mode & 0o100) === 0 ? '100644' : '100755';
};

const isPlain = (node: TreeNode | undefined): boolean =>
  node === undefined || node.entry.kind === 'file' || node.entry.kind === 'symlink';

/** Names with letters that would end a line, or a name, are quoted as git does. */
const quoted = (name: string): string => {
  if (!/["\\\p{Cc}]/u.test(name)) return name;
  const text = [...bytesOfText(name)].map((byte) => {
    if (byte === 0x22 || byte === 0x5c) return `\\${String.fromCharCode(byte)}`;
    return byte < 0x20 || byte === 0x7f
      ? `\\${byte.toString(8).padStart(3, '0')}`
      : String.fromCharCode(byte);
  });
  return `"${Buffer.from(text.join(''), 'latin1').toString()}"`;
};

/** Where a name with a space ends is told by a tab. */
const ended = (name: string): string => (name.includes(' ') && !name.startsWith('"') ? `${name}\t` : name);

/** The changes between two trees, one after the other, as `git apply` takes them. Directories come with what is in them. */
export class GitPatch {
  readonly #differ: TextDiffer;
  readonly #before: TreeView;
  readonly #after: TreeView;
  /** Names begin below this directory. */
  readonly #top: string;

  constructor(
    { server, differ }: { server: PoolCalls; differ: TextDiffer },
    before: LayeredTree,
    after: LayeredTree,
    top: string,
  ) {
    this.#differ = differ;
    this.#before = new TreeView(server, before);
    this.#after = new TreeView(server, after);
    this.#top = top.endsWith('/') ? top : `${top}/`;
  }

  /** Undefined for what is not in a patch by its nature: a directory. */
  async of({ path }: Pick<TreeChange, 'path'>, signal?: AbortSignal): Promise<FilePatch> {
    const [found, now] = await Promise.all([this.#before.find(path), this.#after.find(path)]);
    const [before, after] = [found, now].map((node) =>
      node?.entry.kind === 'directory' ? undefined : node,
    ) as [TreeNode | undefined, TreeNode | undefined];
    if (before === undefined && after === undefined) return undefined;
    if (!isPlain(before) || !isPlain(after)) return { gap: 'kind' };
    if (!path.isWellFormed()) return { gap: 'name' };
    const name = path.startsWith(this.#top) ? path.slice(this.#top.length) : path.slice(1);
    if (before === undefined || after === undefined || before.entry.kind === after.entry.kind)
      return this.#pair(name, before, after, signal);
    const [gone, made] = [
      await this.#pair(name, before, undefined, signal),
      await this.#pair(name, undefined, after, signal),
    ];
    if ('gap' in gone) return gone;
    return 'gap' in made ? made : { text: gone.text + made.text };
  }

  async #pair(
    name: string,
    before: TreeNode | undefined,
    after: TreeNode | undefined,
    signal: AbortSignal | undefined,
  ): Promise<{ text: string } | { gap: PatchGap }> {
    const [old, now] = await Promise.all([contentOf(before), contentOf(after)]);
    if (old === undefined || now === undefined) return { gap: 'too_large' };
    const [oldText, newText] = [textOf(old), textOf(now)];
    if (oldText === undefined || newText === undefined) return { gap: 'binary' };
    const head = headOf(before, after);
    if (oldText === newText && head === '') return { gap: 'mode' };
    const [oldName, newName] = [quoted(`a/${name}`), quoted(`b/${name}`)];
    const start = `diff --git ${oldName} ${newName}\n${head}`;
    if (oldText === newText) return { text: start };
    const texts = { before: oldText, after: newText, beforeName: 'a', afterName: 'b' };
    const hunks = (await this.#differ.diff(texts, signal)).replace(/^(?:=+\n)?---.*\n\+\+\+.*\n/, '');
    const names = [
      before === undefined ? '--- /dev/null' : `--- ${ended(oldName)}`,
      after === undefined ? '+++ /dev/null' : `+++ ${ended(newName)}`,
    ];
    return { text: `${start}${names.join('\n')}\n${hunks}` };
  }
}

const headOf = (before: TreeNode | undefined, after: TreeNode | undefined): string => {
  if (before === undefined) return `new file mode ${modeOf(after!)}\n`;
  if (after === undefined) return `deleted file mode ${modeOf(before)}\n`;
  const [old, now] = [modeOf(before), modeOf(after)];
  return old === now ? '' : `old mode ${old}\nnew mode ${now}\n`;
};

const textOf = (bytes: Buffer): string | undefined => {
  if (bytes.includes(0)) return undefined;
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
};
