import type { FoundInNotes, Note, NoteEntry, RouteBody, RouteResult } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Markdown notes that agents share. They are kept beside the sandboxes and outlive all of them. */
export class Notes {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({
    folder,
    recursive = false,
    signal,
  }: { readonly folder?: string; readonly recursive?: boolean } & CallOptions = {}): Promise<NoteEntry[]> {
    const query = { folder, recursive: recursive ? 'true' : 'false' } as const;
    return (await this.#caller.call('listNotes', { query, signal })).items;
  }

  /** The whole text; with `format: 'json'` the values at its head apart from the rest. */
  read(
    path: string,
    { format, signal }: { readonly format?: 'markdown' | 'json' } & CallOptions = {},
  ): Promise<Note> {
    return this.#caller.call('readNote', { query: { path, format }, signal });
  }

  write(
    path: string,
    content: string,
    { mode, signal }: { readonly mode?: RouteBody<'writeNote'>['mode'] } & CallOptions = {},
  ): Promise<RouteResult<'writeNote'>> {
    return this.#caller.call('writeNote', { body: { path, content, mode }, signal });
  }

  async delete(path: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('deleteNote', { query: { path }, signal });
  }

  async move(
    from: string,
    to: string,
    { overwrite, signal }: { readonly overwrite?: boolean } & CallOptions = {},
  ): Promise<void> {
    await this.#caller.call('moveNote', { body: { from, to, overwrite }, signal });
  }

  /** Every place of a text, or every match of a regular expression. */
  replace(
    path: string,
    search: string,
    replace: string,
    { regex, signal }: { readonly regex?: boolean } & CallOptions = {},
  ): Promise<RouteResult<'replaceInNote'>> {
    return this.#caller.call('replaceInNote', { body: { path, search, replace, regex }, signal });
  }

  search(
    words: string,
    {
      regex = false,
      tag,
      folder,
      limit,
      signal,
    }: {
      readonly regex?: boolean;
      readonly tag?: string;
      readonly folder?: string;
      readonly limit?: number;
    } & CallOptions = {},
  ): Promise<FoundInNotes> {
    const query = { query: words, regex: regex ? 'true' : 'false', tag, folder, limit } as const;
    return this.#caller.call('searchNotes', { query, signal });
  }

  /** Sets and deletes keys and tags at the head of a note; all else there stays as it is. */
  changeFrontmatter(
    path: string,
    { signal, ...changes }: Omit<RouteBody<'changeFrontmatter'>, 'path'> & CallOptions,
  ): Promise<RouteResult<'changeFrontmatter'>> {
    return this.#caller.call('changeFrontmatter', { body: { path, ...changes }, signal });
  }

  /** Of a note, or all that are in use. */
  async tags(path?: string, { signal }: CallOptions = {}): Promise<string[]> {
    return (await this.#caller.call('listNoteTags', { query: { path }, signal })).tags;
  }
}
