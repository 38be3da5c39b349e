import { describe, expect, it } from 'vitest';
import { parseDockerfile } from '../src/builds/dockerfile/parse-dockerfile.ts';
import { readStages } from '../src/builds/dockerfile/read-stages.ts';
import { expand, expandText, rawWords, readPairs } from '../src/builds/dockerfile/words.ts';

const only = (text: string) => parseDockerfile(text).instructions[0]!;

describe('a Dockerfile', () => {
  it('is split into instructions, with lines joined and comments left out', () => {
    const { instructions } = parseDockerfile(
      '# a comment\nfrom alpine\n\nRUN echo one \\\n  # in the middle\n\n  two\nCMD ["a", "b c"]\n',
    );
    expect(instructions.map(({ keyword, rest, line }) => [keyword, rest, line])).toEqual([
      ['FROM', 'alpine', 2],
      ['RUN', 'echo one   two', 4],
      ['CMD', '["a", "b c"]', 8],
    ]);
    expect(instructions[2]!.list).toEqual(['a', 'b c']);
  });

  it('may join lines with a backtick', () => {
    const { instructions } = parseDockerfile('# escape=`\nFROM a\nRUN x C:\\ `\n y\n');
    expect(instructions[1]!.rest).toBe('x C:\\  y');
  });

  it('has flags before the arguments', () => {
    const { flags, rest } = only('COPY --from=base --chown="a b" --link /x /y');
    expect(flags).toEqual([
      { name: 'from', value: 'base' },
      { name: 'chown', value: 'a b' },
      { name: 'link', value: '' },
    ]);
    expect(rest).toBe('/x /y');
  });

  it('holds texts that are read as they are written, up to their end', () => {
    const { heredocs } = only('RUN <<-ONE cat <<"TWO"\n\tfirst $A\n\tONE\nsecond \\\n# no comment\nTWO\n');
    expect(heredocs).toEqual([
      { name: 'ONE', content: 'first $A\n', expands: true },
      { name: 'TWO', content: 'second \\\n# no comment\n', expands: false },
    ]);
  });

  it.each([
    ['BOGUS x', '"BOGUS" is no instruction'],
    ['FROM', 'FROM needs an argument'],
    ['RUN <<EOF\nx\n', 'has no end'],
  ])('that is malformed is refused with its line: %s', (text, message) => {
    expect(() => parseDockerfile(text)).toThrow(message);
  });

  it('puts in variables as a shell does, and not in single quotes', () => {
    const variables = { A: 'one', E: '', B: 'x y' };
    expect(expand(`$A-$\{A}-\\$A-"$B"-'$A'`, variables, '\\')).toBe('one-one-$A-x y-$A');
    expect(expand(`$\{N:-d$A}|$\{E:-d}|$\{E-d}|$\{A:+s}|$\{N:+s}|$`, variables, '\\')).toBe('done|d||s||$');
    expect(() => expand(`$\{A%x}`, variables, '\\')).toThrow('not supported');
    expect(expandText('"$A" \\$A', variables, '\\')).toBe('"one" $A');
    expect(rawWords('a "b c" d\\ e', '\\')).toEqual(['a', '"b c"', 'd\\ e']);
    expect(readPairs('A=1 B="2 3" C=$A', variables, '\\')).toEqual([
      { name: 'A', value: '1' },
      { name: 'B', value: '2 3' },
      { name: 'C', value: 'one' },
    ]);
    expect(readPairs('OLD the rest of it', variables, '\\')).toEqual([
      { name: 'OLD', value: 'the rest of it' },
    ]);
  });

  it('builds only the stages that the target needs', () => {
    const file = parseDockerfile(
      'ARG V=1\nFROM a:$V AS one\nFROM b AS two\nFROM one AS three\nRUN --mount=type=bind,from=two,target=/x y\n' +
        'FROM c AS four\nFROM three\nCOPY --from=0 /a /b\n',
    );
    const names = (target?: string): (string | undefined)[] =>
      readStages(file, { args: { V: '2' }, target }, {}).needed.map(({ name }) => name);
    expect(names()).toEqual(['one', 'two', 'three', undefined]);
    expect(names('TWO')).toEqual(['two']);
    expect(readStages(file, { args: { V: '2' } }, {}).all[0]!.base).toBe('a:2');
    expect(() => names('nine')).toThrow('no stage nine');
  });

  it.each(['ONBUILD RUN x', 'MAINTAINER me'])('with what is not supported is refused by name: %s', (text) => {
    const file = parseDockerfile(`FROM a\n${text}\n`);
    expect(() => readStages(file, { args: {} }, {})).toThrow(`${text.split(' ')[0]} is not supported`);
  });
});
