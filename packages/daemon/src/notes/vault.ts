import { isUtf8 } from 'node:buffer';
import { posix } from 'node:path';
import {
  CoppiceError,
  type changeFrontmatterSchema,
  type FoundInNotes,
  type NoteEntry,
  type Note as NoteView,
  type writeNoteSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import { TextSearch } from '../text/replace-text.ts';
import type { ConfinedDirectory, ConfinedEntry } from './confined-directory.ts';
import { editFrontmatter, type Frontmatter, parseNote } from './frontmatter.ts';
import { PatternThread, type Replaced } from './pattern-thread.ts';

const noteLimitBytes = 10 * 1024 * 1024;

export interface SearchRequest {
  readonly query: string;
  readonly isRegex: boolean;
  readonly limit: number;
  readonly tag?: string | undefined;
  readonly folder?: string | undefined;
}

type FrontmatterChanges = Omit<z.output<typeof changeFrontmatterSchema>, 'path'>;

const tagsOf = (frontmatter: Frontmatter): string[] => {
  const { tags } = frontmatter;
  if (Array.isArray(tags)) return tags.map(String);
  return typeof tags === 'string' && tags !== '' ? tags.split(/[\s,]+/) : [];
};

/** Of the text of a note; one whose frontmatter cannot be read has none, and does not stop a search through the others. */
const tagsIn = (text: string): string[] => {
  try {
    return tagsOf(parseNote(text).frontmatter);
  } catch (error) {
    if (error instanceof CoppiceError) return [];
    throw error;
  }
};

/** Of a line that is longer no more is looked at. */
const lineLimitChars = 10_000;

type FindLines = (lines: readonly string[]) => number[] | Promise<number[]>;

const findWords = (query: string): FindLines => {
  const lower = query.toLowerCase();
  return (lines) => lines.flatMap((line, index) => (line.toLowerCase().includes(lower) ? [index] : []));
};

async function* single(text: string): AsyncIterable<Buffer> {
  yield Buffer.from(text);
}

/** Markdown notes that all sessions share, kept beside the sandboxes and not inside any. */
export class Vault {
  readonly #directory: ConfinedDirectory;
  /** Read, change and write of one note are one step for everybody. */
  readonly #tails = new Map<string, Promise<unknown>>();

  constructor(directory: ConfinedDirectory) {
    this.#directory = directory;
  }

  async read(path: string): Promise<string> {
    const { file, sizeBytes } = await this.#directory.read(this.#note(path)).catch(asMissing(path));
    try {
      if (sizeBytes > noteLimitBytes) throw tooLarge(path);
      const bytes = await file.readFile();
      if (!isUtf8(bytes)) throw new CoppiceError('invalid_argument', `the note ${path} is not text`);
      return bytes.toString();
    } finally {
      await file.close();
    }
  }

  async note(path: string, format: 'markdown' | 'json'): Promise<NoteView> {
    const content = await this.read(path);
    if (format === 'markdown') return { path, content };
    const { frontmatter, body } = parseNote(content);
    return { path, content: body, frontmatter };
  }

  async write({
    path,
    content,
    mode,
  }: z.output<typeof writeNoteSchema>): Promise<{ path: string; bytes: number }> {
    const text = await this.#change(path, (before = '') =>
      mode === 'overwrite' ? content : mode === 'append' ? before + content : content + before,
    );
    return { path, bytes: Buffer.byteLength(text) };
  }

  /** Changes a note by what it says now; undefined where there is none yet. Gives back what was written. */
  async #change(
    path: string,
    edit: (before: string | undefined) => string | Promise<string>,
  ): Promise<string> {
    const name = this.#note(path);
    return this.#inTurn(name, async () => {
      const before = (await this.#directory.exists(name)) ? await this.read(name) : undefined;
      const after = await edit(before);
      if (Buffer.byteLength(after) > noteLimitBytes) throw tooLarge(path);
      await this.#directory.write(name, single(after));
      return after;
    });
  }

  /** Every place of a text, or every match of a pattern. Gives back how many there were. */
  async replace(path: string, search: string, by: string, isRegex: boolean): Promise<number> {
    let count = 0;
    await this.#change(path, async (before) => {
      if (before === undefined) return missing(path);
      const replaced = await (isRegex ? replacePattern : replaceText)(before, search, by);
      count = replaced.count;
      if (count === 0) throw new CoppiceError('no_match', `the text is not in the note ${path}`);
      return replaced.text;
    });
    return count;
  }

  async changeFrontmatter(
    path: string,
    changes: FrontmatterChanges,
  ): Promise<{ path: string; frontmatter: Frontmatter; tags: string[] }> {
    const written = await this.#change(path, (before) =>
      editFrontmatter(before ?? missing(path), (values) => changed(values, changes)),
    );
    const { frontmatter } = parseNote(written);
    return { path, frontmatter, tags: tagsOf(frontmatter) };
  }

  async remove(path: string): Promise<void> {
    const name = this.#note(path);
    await this.#inTurn(name, () => this.#directory.remove(name)).catch(asMissing(path));
  }

  async move(from: string, to: string, overwrite: boolean): Promise<void> {
    const [source, target] = [this.#note(from), this.#note(to)];
    await this.#inTurn(target, async () => {
      if (!overwrite && (await this.#directory.exists(target)))
        throw new CoppiceError('name_taken', `there is already a note ${to}`, {
          hint: 'Choose another path, or say that it may be overwritten (overwrite, `--force`).',
        });
      await this.#directory.move(source, target).catch(asMissing(from));
    });
  }

  /** Everything below a folder, or only what is in it; sorted by path. */
  async list(folder: string, recursive: boolean): Promise<NoteEntry[]> {
    const base = this.#directory.relative(folder);
    const found: NoteEntry[] = [];
    const visit = async (path: string): Promise<void> => {
      for (const entry of await this.#directory.list(path)) {
        const child = posix.join(path, entry.name);
        found.push(toEntry(child, entry));
        if (recursive && entry.isDirectory) await visit(child);
      }
    };
    await visit(base);
    return found.sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  async #notes(folder = ''): Promise<NoteEntry[]> {
    const entries = await this.list(folder, true);
    return entries.filter((entry) => !entry.is_dir && entry.path.endsWith('.md'));
  }

  /** Tags of a note, or all that are in use, sorted. */
  async tags(path?: string): Promise<string[]> {
    if (path !== undefined) return tagsOf(parseNote(await this.read(path)).frontmatter);
    const all = new Set<string>();
    for (const { path } of await this.#notes()) for (const tag of tagsIn(await this.read(path))) all.add(tag);
    return [...all].sort();
  }

  /** Lines that hold the words or match the pattern, note by note. */
  async search(wanted: SearchRequest): Promise<FoundInNotes> {
    if (!wanted.isRegex) return this.#search(wanted, findWords(wanted.query));
    await using pattern = new PatternThread(wanted.query, 'i');
    return await this.#search(wanted, (lines) =>
      pattern.matches(lines.map((line) => line.slice(0, lineLimitChars))),
    );
  }

  async #search(wanted: SearchRequest, find: FindLines): Promise<FoundInNotes> {
    const results: FoundInNotes['results'] = [];
    for (const { path } of await this.#notes(wanted.folder)) {
      const text = await this.read(path);
      if (wanted.tag !== undefined && !tagsIn(text).includes(wanted.tag)) continue;
      const lines = text.split('\n');
      for (const index of await find(lines)) {
        if (results.length === wanted.limit) return { results, truncated: true };
        const context = lines.slice(Math.max(0, index - 1), index + 2).join('\n');
        results.push({ path, line_number: index + 1, line: lines[index]!, context });
      }
    }
    return { results, truncated: false };
  }

  #note(path: string): string {
    const name = this.#directory.relative(path);
    if (name === '')
      throw new CoppiceError('invalid_argument', 'a note needs a path, such as plans/today.md');
    return name.endsWith('.md') ? name : `${name}.md`;
  }

  async #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(name) ?? Promise.resolve();
    const turn = before.then(work, work);
    const tail = turn.catch(() => undefined);
    this.#tails.set(name, tail);
    try {
      return await turn;
    } finally {
      if (this.#tails.get(name) === tail) this.#tails.delete(name);
    }
  }
}

const changed = (before: Frontmatter, changes: FrontmatterChanges): Frontmatter => {
  const after = { ...before, ...changes.set };
  for (const key of changes.delete ?? []) delete after[key];
  const { add_tags: added = [], remove_tags: removed = [] } = changes;
  if (added.length + removed.length === 0) return after;
  const others = tagsOf(after).filter((tag) => !added.includes(tag) && !removed.includes(tag));
  return { ...after, tags: [...others, ...added] };
};

const toEntry = (path: string, entry: ConfinedEntry): NoteEntry => ({
  path,
  is_dir: entry.isDirectory,
  size: entry.isDirectory ? 0 : entry.sizeBytes,
  modified: new Date(entry.modifiedMs).toISOString(),
});

const replacePattern = async (text: string, search: string, by: string): Promise<Replaced> => {
  await using pattern = new PatternThread(search, 'g');
  return await pattern.replace(text, by);
};

const replaceText = async (text: string, wanted: string, by: string): Promise<Replaced> => {
  const [before, old, fresh] = [Buffer.from(text), Buffer.from(wanted), Buffer.from(by)];
  const search = new TextSearch(before, old);
  const count = await search.count();
  if (before.length + count * (fresh.length - old.length) > noteLimitBytes)
    throw new CoppiceError('too_large', `the note would become larger than ${noteLimitBytes} bytes`);
  return { text: (await search.replace(fresh, count)).toString(), count };
};

const tooLarge = (path: string): CoppiceError =>
  new CoppiceError('too_large', `the note ${path} is larger than ${noteLimitBytes} bytes`);

const missing = (path: string): never => {
  throw new CoppiceError('not_found', `there is no note ${path}`, {
    hint: 'See `coppice notes ls --recursive`.',
  });
};

const asMissing =
  (path: string) =>
  (error: unknown): never => {
    if (error instanceof CoppiceError && error.code === 'not_found') return missing(path);
    throw error;
  };
