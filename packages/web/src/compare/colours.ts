import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import css from 'highlight.js/lib/languages/css';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import rust from 'highlight.js/lib/languages/rust';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';

const languages = { bash, css, go, ini, javascript, json, markdown, python, rust, typescript, xml, yaml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

const byEnding: Readonly<Record<string, keyof typeof languages>> = {
  sh: 'bash',
  bash: 'bash',
  css: 'css',
  go: 'go',
  ini: 'ini',
  toml: 'ini',
  conf: 'ini',
  js: 'javascript',
  mjs: 'javascript',
  cjs: 'javascript',
  jsx: 'javascript',
  json: 'json',
  md: 'markdown',
  py: 'python',
  rs: 'rust',
  ts: 'typescript',
  tsx: 'typescript',
  html: 'xml',
  svg: 'xml',
  xml: 'xml',
  yml: 'yaml',
  yaml: 'yaml',
};

export interface Piece {
  readonly scope: string;
  readonly text: string;
}

interface Token {
  readonly scope?: string;
  readonly children: readonly (Token | string)[];
}

/** More takes longer than colours are worth. */
const mostChars = 200_000;

/** Each line in pieces with what they are. Nothing here is markup: the pieces are put into the page as text. */
export const colour = (path: string, lines: readonly string[]): readonly (readonly Piece[])[] | undefined => {
  const language = byEnding[/\.(\w+)$/.exec(path)?.[1]?.toLowerCase() ?? ''];
  const code = lines.join('\n');
  if (language === undefined || code.length > mostChars) return undefined;
  const found = hljs.highlight(code, { language, ignoreIllegals: true }) as unknown as {
    readonly _emitter: { readonly rootNode: Token };
  };
  const coloured: Piece[][] = [[]];
  const walk = (node: Token | string, scope: string): void => {
    if (typeof node === 'string') {
      node.split('\n').forEach((text, index) => {
        if (index > 0) coloured.push([]);
        if (text !== '') coloured.at(-1)!.push({ scope, text });
      });
      return;
    }
    for (const child of node.children) walk(child, node.scope ?? scope);
  };
  walk(found._emitter.rootNode, '');
  return coloured;
};
