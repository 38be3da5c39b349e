import { Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { TextOutput } from '../src/ui/text.ts';

/** What is written to a stream, which says whether it is a terminal. */
const recorder = (isTTY: boolean): { stream: NodeJS.WriteStream; text: () => string } => {
  let written = '';
  const stream = new Writable({
    write(chunk, _encoding, done) {
      written += String(chunk);
      done();
    },
  });
  return { stream: Object.assign(stream, { isTTY }) as unknown as NodeJS.WriteStream, text: () => written };
};

const hostile = 'said \x1b]0;owned\x07\x1b[2J\x1b[1A\x1b[8mhidden\x9b2J\u202egnp.exe\r';

describe('text for people', () => {
  test('moves no cursor, sets no title and hides nothing on a terminal, whatever a sandbox put into it', () => {
    const [stdout, stderr] = [recorder(true), recorder(true)];
    const out = new TextOutput({ stdout: stdout.stream, stderr: stderr.stream, env: {} });
    out.result({}, () => `${out.paint('green', 'ok')} ${hostile}\nnext`);
    out.note(`could not be read: ${hostile}`);
    for (const { text } of [stdout, stderr]) {
      expect(text()).toContain('\\x1b]0;owned\\x07');
      expect(text().replaceAll(/\x1b\[(32|39)m/g, '')).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]/);
    }
    expect(stdout.text()).toMatch(/^\x1b\[32mok\x1b\[39m said/);
    expect(stdout.text()).toMatch(/\nnext\n$/);
  });

  test('goes to a program as it is, and notes are clean everywhere', () => {
    const [stdout, stderr] = [recorder(false), recorder(false)];
    const out = new TextOutput({ stdout: stdout.stream, stderr: stderr.stream, env: {} });
    out.result({}, () => hostile);
    out.note(hostile);
    expect(stdout.text()).toBe(`${hostile}\n`);
    expect(stderr.text()).not.toContain('\x1b');
  });
});
