import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectGuest, type PtyAttachment } from '../src/index.ts';
import { type Agent, collect, shell, startAgent } from './guest/start-agent.ts';

let agent: Agent;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());

const size = { cols: 80, rows: 24 };

/** Reads on until the text has been shown. Only one reader at a time. */
const screen = (attachment: PtyAttachment) => {
  const output = attachment.output[Symbol.asyncIterator]();
  let shown = '';
  return {
    async until(expected: string | RegExp): Promise<string> {
      while (typeof expected === 'string' ? !shown.includes(expected) : !expected.test(shown)) {
        const next = await output.next();
        if (next.done)
          throw new Error(
            `the terminal ended without showing ${expected}; it showed ${JSON.stringify(shown)}`,
          );
        shown += next.value;
      }
      return shown;
    },
  };
};

describe('a terminal', () => {
  it('is one for its program, takes input and shows output', async () => {
    const pty = await agent.guest.openPty({
      argv: shell('test -t 0 && test -t 1 && echo a terminal; read line; echo got $line'),
      ...size,
    });
    expect(pty).toMatchObject({ running: true, exit: null, cols: 80, rows: 24 });
    const attachment = await agent.guest.attachPty(pty.id);
    const shown = screen(attachment);
    await shown.until('a terminal');
    await attachment.write(Buffer.from('hello\n'));
    await shown.until('got hello');
    expect(await attachment.exit).toEqual({ code: 0, signal: null, timedOut: false });
  });

  it('tells its program when its size changes', async () => {
    const script = 'trap "stty size; exit 0" WINCH; stty size; while :; do sleep 0.02; done';
    const pty = await agent.guest.openPty({ argv: shell(script), ...size });
    const attachment = await agent.guest.attachPty(pty.id);
    const shown = screen(attachment);
    await shown.until('24 80');
    await agent.guest.resizePty(pty.id, 132, 50);
    await shown.until('50 132');
    expect((await agent.guest.listPtys()).find(({ id }) => id === pty.id)).toMatchObject({
      cols: 132,
      rows: 50,
    });
    expect(await attachment.exit).toMatchObject({ code: 0 });
  });

  it('goes on when its viewer leaves, and shows the next one what it missed', async () => {
    const other = await connectGuest(agent.socketPath);
    const pty = await other.openPty({ argv: ['sh'], env: { PS1: '' }, ...size });
    const before = await other.attachPty(pty.id);
    await before.write(Buffer.from('variable=kept; echo first-$variable\n'));
    await screen(before).until('first-kept');
    other.close();
    await other.closed;
    const attachment = await agent.guest.attachPty(pty.id);
    const shown = screen(attachment);
    await shown.until('first-kept');
    await attachment.write(Buffer.from('echo second-$variable\n'));
    await shown.until('second-kept');
    attachment.detach();
    await expect(attachment.exit).rejects.toMatchObject({ code: 'cancelled' });
    const last = await agent.guest.attachPty(pty.id);
    await last.write(Buffer.from('exit 3\n'));
    expect(await last.exit).toMatchObject({ code: 3 });
  });

  it('shows the same to several at once', async () => {
    const pty = await agent.guest.openPty({ argv: shell('read line; echo shared; read line'), ...size });
    const one = await agent.guest.attachPty(pty.id);
    const two = await agent.guest.attachPty(pty.id);
    await one.write(Buffer.from('\n'));
    await Promise.all([screen(one).until('shared'), screen(two).until('shared')]);
    await two.write(Buffer.from('\n'));
    expect(await Promise.all([one.exit, two.exit])).toEqual([
      { code: 0, signal: null, timedOut: false },
      { code: 0, signal: null, timedOut: false },
    ]);
  });

  it('that has ended can be attached to: what it showed and how it ended are there', async () => {
    for (let i = 0; i < 30; i++) {
      const pty = await agent.guest.openPty({ argv: shell(`echo last words ${i}; exit ${i}`), ...size });
      // Attached while it runs, ends, or has ended: whichever comes first.
      const attachment = await agent.guest.attachPty(pty.id);
      expect((await collect(attachment.output)).toString()).toBe(`last words ${i}\r\n`);
      expect(await attachment.exit).toEqual({ code: i, signal: null, timedOut: false });
      const again = await agent.guest.attachPty(pty.id);
      expect((await collect(again.output)).toString()).toBe(`last words ${i}\r\n`);
      expect(await again.exit).toMatchObject({ code: i });
    }
  });

  it('keeps 64 KiB for those who come later, and misses nothing for one who watches', async () => {
    const pty = await agent.guest.openPty({
      argv: shell('stty raw; read x; head -c 1000000 /dev/zero | tr "\\0" a; echo end'),
      ...size,
    });
    const watching = await agent.guest.attachPty(pty.id);
    await watching.write(Buffer.from('\n'));
    const shown = (await collect(watching.output)).toString();
    expect(shown.match(/a/g)).toHaveLength(1_000_000);
    const late = await agent.guest.attachPty(pty.id);
    const kept = await collect(late.output);
    expect(kept.length).toBe(65_536);
    expect(kept.subarray(-4).toString()).toContain('end');
  });

  it('takes signals while it runs', async () => {
    const pty = await agent.guest.openPty({ argv: ['sleep', '1000'], ...size });
    await agent.guest.signalPty(pty.id, 9);
    const attachment = await agent.guest.attachPty(pty.id);
    expect(await attachment.exit).toEqual({ code: null, signal: 9, timedOut: false });
    await expect(agent.guest.signalPty(pty.id, 9)).rejects.toMatchObject({ code: 'wrong_state' });
    await expect(agent.guest.resizePty(pty.id, 80, 24)).rejects.toMatchObject({ code: 'wrong_state' });
    await expect(agent.guest.attachPty(999_999)).rejects.toMatchObject({ code: 'not_found' });
    await expect(agent.guest.resizePty(pty.id, 0, 24)).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});
