import { CoppiceError } from '@coppice/protocol';

export type FrontmatterValue = string | number | boolean | null | readonly string[];
export type Frontmatter = Record<string, FrontmatterValue>;

const fence = '---';

const scalar = (text: string): string | number | boolean | null => {
  const trimmed = text.trim();
  if (trimmed === '' || trimmed === 'null' || trimmed === '~') return null;
  if (trimmed === 'true' || trimmed === 'false') return trimmed === 'true';
  if (/^-?(0|[1-9]\d*)(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  if (trimmed.startsWith('"')) {
    try {
      return String(JSON.parse(trimmed));
    } catch {
      return trimmed;
    }
  }
  return trimmed.startsWith("'") && trimmed.endsWith("'") && trimmed.length > 1
    ? trimmed.slice(1, -1).replaceAll("''", "'")
    : trimmed;
};

const flowList = (text: string): string[] =>
  [...text.slice(1, -1).matchAll(/\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,]+)/g)]
    .map(([, item = '']) => scalar(item))
    .filter((item) => item !== null)
    .map(String);

const unreadable = (line: string): CoppiceError =>
  new CoppiceError('unsupported', `the frontmatter line \`${line}\` is not \`key: value\``, {
    hint: 'Keep frontmatter flat: `key: value`, `key: [a, b]`, or a list of `- item` lines. Rewrite the note with vault_write.',
  });

/** The flat part of YAML that notes use: scalars and lists of strings. */
const parseLines = (lines: readonly string[]): Frontmatter => {
  const result: Frontmatter = {};
  let listKey: string | undefined;
  for (const line of lines) {
    if (line.trim() === '' || line.trimStart().startsWith('#')) continue;
    const item = /^\s*-\s+(.*)$/.exec(line);
    if (item !== null && listKey !== undefined) {
      const before = result[listKey];
      result[listKey] = [...(Array.isArray(before) ? before : []), String(scalar(item[1]!) ?? '')];
      continue;
    }
    const pair = /^([A-Za-z0-9_][A-Za-z0-9_ .-]*):(?:\s+(.*))?$/.exec(line);
    if (pair === null) throw unreadable(line);
    const [, key = '', value = ''] = pair;
    listKey = value.trim() === '' ? key : undefined;
    const text = value.trim();
    result[key] = text.startsWith('[') && text.endsWith(']') ? flowList(text) : scalar(text);
  }
  return result;
};

export interface Note {
  readonly frontmatter: Frontmatter;
  readonly body: string;
}

export const parseNote = (text: string): Note => {
  const lines = text.split('\n');
  const end = lines[0] === fence ? lines.indexOf(fence, 1) : -1;
  if (end < 0) return { frontmatter: {}, body: text };
  return { frontmatter: parseLines(lines.slice(1, end)), body: lines.slice(end + 1).join('\n') };
};

const plain = /^[A-Za-z_][A-Za-z0-9_ ./-]*$/;
const reserved = new Set(['true', 'false', 'null']);

const format = (value: FrontmatterValue): string => {
  if (Array.isArray(value)) return `[${value.map((item) => format(item as string)).join(', ')}]`;
  if (typeof value !== 'string') return String(value);
  return plain.test(value) && !reserved.has(value) && value.trim() === value ? value : JSON.stringify(value);
};

export const formatNote = ({ frontmatter, body }: Note): string => {
  const entries = Object.entries(frontmatter);
  if (entries.length === 0) return body;
  return `${[fence, ...entries.map(([key, value]) => `${key}: ${format(value)}`), fence, body].join('\n')}`;
};
