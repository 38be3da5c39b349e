import { CoppiceError } from '@coppice/protocol';
import { Document, isMap, parseDocument, type YAMLMap } from 'yaml';

export type Frontmatter = Record<string, unknown>;

const fence = '---';
/** YAML takes long to parse, and some texts much longer than others: no more than this is parsed at once. */
const limitChars = 16_384;

export interface Note {
  readonly frontmatter: Frontmatter;
  readonly body: string;
}

interface Parts {
  /** The YAML between the fences; undefined where there are none. */
  readonly head: string | undefined;
  readonly body: string;
}

const split = (text: string): Parts => {
  if (!text.startsWith(`${fence}\n`)) return { head: undefined, body: text };
  const end = text.indexOf(`\n${fence}\n`, fence.length);
  const atEnd = end < 0 && text.endsWith(`\n${fence}`) && text.length > 2 * fence.length;
  if (end < 0 && !atEnd) return { head: undefined, body: text };
  const last = end < 0 ? text.length - fence.length - 1 : end;
  return {
    head: text.slice(fence.length + 1, last + 1),
    body: end < 0 ? '' : text.slice(end + fence.length + 2),
  };
};

const unreadable = (reason: string, cause?: unknown): CoppiceError =>
  new CoppiceError('unsupported', `the frontmatter of the note cannot be read: ${reason}`, {
    hint: 'Frontmatter is YAML without aliases, such as `key: value` and `tags: [a, b]`. Rewrite the note.',
    cause,
  });

const parse = (head: string): Document<YAMLMap> => {
  if (head.length > limitChars)
    throw new CoppiceError(
      'too_large',
      `the frontmatter of the note is longer than ${limitChars} characters`,
    );
  let document: Document.Parsed;
  try {
    document = parseDocument(head, { schema: 'core', prettyErrors: false });
  } catch (cause) {
    throw unreadable('it is nested too deeply', cause);
  }
  const [error] = document.errors;
  if (error !== undefined) throw unreadable(error.message, error);
  if (document.contents === null) return new Document({}) as unknown as Document<YAMLMap>;
  if (!isMap(document.contents)) throw unreadable('it is not a list of keys with values');
  return document as unknown as Document<YAMLMap>;
};

const valuesOf = (document: Document<YAMLMap>): Frontmatter => {
  try {
    return document.toJS({ maxAliasCount: 0 }) as Frontmatter;
  } catch (cause) {
    throw unreadable((cause as Error).message, cause);
  }
};

export const parseNote = (text: string): Note => {
  const { head, body } = split(text);
  return { frontmatter: head === undefined ? {} : valuesOf(parse(head)), body };
};

/** Changes the keys whose values differ afterwards; order and comments of all others stay. */
export const editFrontmatter = (text: string, edit: (before: Frontmatter) => Frontmatter): string => {
  const { head, body } = split(text);
  const document = parse(head ?? '');
  const before = valuesOf(document);
  const after = edit(before);
  for (const key of Object.keys(before)) if (!Object.hasOwn(after, key)) document.delete(key);
  for (const [key, value] of Object.entries(after))
    if (JSON.stringify(value) !== JSON.stringify(before[key]))
      document.set(key, document.createNode(value, { flow: true }));
  if (Object.keys(after).length === 0) return body;
  const written = document.toString({ lineWidth: 0, flowCollectionPadding: false });
  return `${fence}\n${written}${fence}\n${body}`;
};
