import { CoppiceError } from '@coppice/protocol';

interface Heredoc {
  readonly name: string;
  readonly content: string;
  /** Variables in it are replaced, unless its name was quoted. */
  readonly expands: boolean;
}

export interface Instruction {
  /** Of the file, from 1. */
  readonly line: number;
  /** In capitals. */
  readonly keyword: string;
  /** What stands before the arguments, as `--from=x`; one without a value is empty. */
  readonly flags: readonly { readonly name: string; readonly value: string }[];
  /** The arguments as they are written, lines joined. */
  readonly rest: string;
  /** The arguments, where they are written as a JSON list. */
  readonly list?: readonly string[];
  readonly heredocs: readonly Heredoc[];
  /** For people, on one line. */
  readonly text: string;
}

export interface Dockerfile {
  readonly instructions: readonly Instruction[];
  readonly escapeWith: '\\' | '`';
}

const keywords = new Set(
  (
    'ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER ' +
    'VOLUME WORKDIR'
  ).split(' '),
);
const withFlags = new Set(['ADD', 'COPY', 'FROM', 'HEALTHCHECK', 'RUN']);
const withHeredocs = new Set(['ADD', 'COPY', 'RUN']);
const withList = new Set(['ADD', 'CMD', 'COPY', 'ENTRYPOINT', 'RUN', 'SHELL', 'VOLUME']);
const heredocWord = /^\d*<<(-?)(['"]?)([A-Za-z_][\w.-]*)\2$/;

export const badLine = (line: number, message: string, hint?: string): CoppiceError =>
  new CoppiceError('invalid_argument', `line ${line} of the Dockerfile: ${message}`, {
    details: { line },
    ...(hint === undefined ? {} : { hint }),
  });

export const unsupportedLine = (line: number, what: string, hint?: string): CoppiceError =>
  new CoppiceError('unsupported', `line ${line} of the Dockerfile: ${what} is not supported`, {
    details: { line },
    hint:
      hint ?? 'Nothing was built. Write it another way, or build it with another tool and pull the result.',
  });

/** Splits a Dockerfile into its instructions; says nothing about what they mean. */
export function parseDockerfile(text: string): Dockerfile {
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  const escapeWith = escapeOf(lines);
  const instructions: Instruction[] = [];
  const isComment = (line: string): boolean => /^\s*#/.test(line);
  for (let at = 0; at < lines.length; ) {
    const first = lines[at]!;
    if (first.trim() === '' || isComment(first)) {
      at += 1;
      continue;
    }
    const start = at + 1;
    let whole = '';
    for (let goesOn = true; goesOn && at < lines.length; at += 1) {
      const line = lines[at]!;
      if (isComment(line) || (line.trim() === '' && at + 1 > start)) continue;
      const trimmed = line.trimEnd();
      goesOn = trimmed.endsWith(escapeWith);
      whole += goesOn ? trimmed.slice(0, -1) : line;
    }
    const { instruction, heredocNames } = parseLine(whole.trim(), start);
    const heredocs: Heredoc[] = [];
    for (const { name, strips, expands } of heredocNames) {
      const begun = at;
      const end = lines.findIndex(
        (line, index) => index >= at && (strips ? line.replace(/^\t+/, '') : line) === name,
      );
      if (end < 0) throw badLine(start, `the text that begins with <<${name} has no end`);
      const body = lines.slice(begun, end).map((line) => (strips ? line.replace(/^\t+/, '') : line));
      heredocs.push({ name, expands, content: body.map((line) => `${line}\n`).join('') });
      at = end + 1;
    }
    instructions.push({ ...instruction, heredocs });
  }
  return { instructions, escapeWith };
}

/** A comment before everything else may say which character joins lines. */
function escapeOf(lines: readonly string[]): '\\' | '`' {
  for (const line of lines) {
    const directive = /^\s*#\s*([A-Za-z]+)\s*=\s*(\S+)\s*$/.exec(line);
    if (directive === null) return '\\';
    if (directive[1]!.toLowerCase() !== 'escape') continue;
    if (directive[2] === '`') return '`';
    if (directive[2] !== '\\') throw badLine(1, 'escape is \\ or `');
  }
  return '\\';
}

function parseLine(
  text: string,
  line: number,
): {
  instruction: Omit<Instruction, 'heredocs'>;
  heredocNames: { name: string; strips: boolean; expands: boolean }[];
} {
  const [, word = '', after = ''] = /^(\S+)\s*(.*)$/s.exec(text) ?? [];
  const keyword = word.toUpperCase();
  if (!keywords.has(keyword)) throw badLine(line, `${JSON.stringify(word.slice(0, 40))} is no instruction`);
  let rest = after;
  const flags: { name: string; value: string }[] = [];
  while (withFlags.has(keyword)) {
    const flag = /^--([a-z][a-z-]*)(?:=("[^"]*"|\S*))?(?:\s+|$)/.exec(rest);
    if (flag === null) break;
    flags.push({ name: flag[1]!, value: (flag[2] ?? '').replace(/^"(.*)"$/, '$1') });
    rest = rest.slice(flag[0].length);
  }
  if (rest.trim() === '') throw badLine(line, `${keyword} needs an argument`);
  const list = withList.has(keyword) || keyword === 'HEALTHCHECK' ? readList(rest) : undefined;
  const heredocNames = withHeredocs.has(keyword) && list === undefined ? heredocsOf(rest) : [];
  const shown = text.replace(/\s+/g, ' ').slice(0, 500);
  return {
    instruction: { line, keyword, flags, rest, text: shown, ...(list === undefined ? {} : { list }) },
    heredocNames,
  };
}

const heredocsOf = (rest: string): { name: string; strips: boolean; expands: boolean }[] =>
  rest
    .split(/\s+/)
    .map((word) => heredocWord.exec(word))
    .filter((found) => found !== null)
    .map(([, dash, quote, name]) => ({ name: name!, strips: dash === '-', expands: quote === '' }));

export const isHeredocWord = (word: string): boolean => heredocWord.test(word);

export function readList(text: string): string[] | undefined {
  if (!text.trimStart().startsWith('[')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value) && value.every((word) => typeof word === 'string')) return value;
  } catch {
    // Then it is a command of a shell that begins with a bracket.
  }
  return undefined;
}
