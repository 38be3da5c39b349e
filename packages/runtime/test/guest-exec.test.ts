import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectGuest } from '../src/index.ts';
import { type Agent, run, shell, startAgent, until } from './guest/start-agent.ts';

const exited = (code: number) => ({ code, signal: null, timedOut: false });

let agent: Agent;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());

describe('a foreground process', () => {
  it('gives its two streams apart, and its exit code', async () => {
    expect(await run(agent.guest, shell('echo out; echo err >&2; exit 7'))).toEqual({
      stdout: 'out\n',
      stderr: 'err\n',
      exit: exited(7),
    });
  });

  it('that ends by a signal says which', async () => {
    expect((await run(agent.guest, shell('kill -USR1 $$'))).exit).toEqual({
      code: null,
      signal: 10,
      timedOut: false,
    });
  });

  it('has the environment it was given, and only what every program needs besides', async () => {
    const { stdout } = await run(agent.guest, {
      argv: ['env'],
      env: { GREETING: 'hello world', HOME: '/tmp' },
    });
    const lines = stdout.trimEnd().split('\n');
    expect(lines).toContain('GREETING=hello world');
    expect(lines).toContain('HOME=/tmp');
    expect(lines.map((line) => line.split('=')[0]).sort()).toEqual([
      'GREETING',
      'HOME',
      'PATH',
      'SHELL',
      'USER',
    ]);
  });

  it('runs in its working directory, and without one in /workspace or the home of its user', async () => {
    expect((await run(agent.guest, { argv: ['pwd'], cwd: agent.dir })).stdout).toBe(`${agent.dir}\n`);
    const { stdout } = await run(agent.guest, shell('pwd; echo $HOME'));
    const [cwd, home] = stdout.split('\n');
    expect(cwd).toBe(existsSync('/workspace') ? '/workspace' : home);
  });

  it('runs as the user asked for, by name or by number, with that user’s groups only', async () => {
    const byName = await run(agent.guest, {
      argv: shell('id -un; id -u; id -G; echo $USER'),
      user: 'nobody',
    });
    const [name, uid, groups, variable] = byName.stdout.split('\n');
    expect([name, variable]).toEqual(['nobody', 'nobody']);
    const byNumber = await run(agent.guest, { argv: shell('id -u; id -G'), user: uid! });
    expect(byNumber.stdout).toBe(`${uid}\n${groups}\n`);
    const withoutEntry = await run(agent.guest, { argv: shell('id -u; id -g; pwd'), user: '54321' });
    expect(withoutEntry.stdout).toMatch(/^54321\n54321\n\/(workspace)?\n$/);
  });

  it('sees its input byte for byte, and the end of it', async () => {
    const input = Buffer.alloc(3_000_000);
    for (let i = 0; i < input.length; i++) input[i] = (i * 7 + (i >> 8)) & 0xff;
    const child = await agent.guest.exec({ argv: ['cat'] });
    const writing = child.writeStdin(input).then(() => child.endStdin());
    const parts: Buffer[] = [];
    for await (const chunk of child.output) parts.push(chunk.data);
    await writing;
    expect(Buffer.concat(parts).equals(input)).toBe(true);
    expect(await child.exit).toEqual(exited(0));
  });

  it('that does not read its input does not keep its writer waiting', async () => {
    const child = await agent.guest.exec({ argv: shell('exit 3') });
    const writing = child.writeStdin(Buffer.alloc(5_000_000)).catch((error) => error.code);
    expect(await child.exit).toEqual(exited(3));
    expect([undefined, 'wrong_state']).toContain(await writing);
  });

  it('gets signals with its whole group', async () => {
    const child = await agent.guest.exec({
      argv: shell('trap "echo got; exit 5" TERM; echo ready; while :; do sleep 0.05; done'),
    });
    let seen = '';
    for await (const { data } of child.output) {
      seen += data;
      if (seen === 'ready\n') await child.signal(15);
    }
    expect(seen).toContain('got');
    expect(await child.exit).toEqual(exited(5));
  });

  it('has an exit status even when nobody reads its output', async () => {
    const child = await agent.guest.exec({ argv: shell('echo unread; exit 4') });
    expect(await child.exit).toEqual(exited(4));
  });

  it('goes on when its reader stops early, and its output is dropped', async () => {
    const child = await agent.guest.exec({ argv: shell('head -c 8000000 /dev/zero; exit 6') });
    for await (const _ of child.output) break;
    expect(await child.exit).toEqual(exited(6));
  });
});

describe('a process that does not end', () => {
  it('is killed with its whole group when its time is over', async () => {
    const script = `(exec sh -c 'echo $$; sleep 1000') & echo $$; sleep 1000`;
    const { stdout, exit } = await run(agent.guest, { argv: shell(script), timeoutMs: 1500 });
    expect(exit).toEqual({ code: null, signal: 9, timedOut: true });
    // They may be seen as zombies for an instant, until whoever inherits them has reaped them.
    for (const pid of stdout.trim().split('\n'))
      await until(`the end of ${pid}`, () => !isAlive(Number(pid)));
  });

  it('never keeps another from running', async () => {
    const hanging = await Promise.all(
      Array.from({ length: 20 }, () => agent.guest.exec({ argv: ['sleep', '1000'] })),
    );
    expect((await run(agent.guest, ['echo', 'fine'])).stdout).toBe('fine\n');
    for (const child of hanging) child.close();
    for (const child of hanging) {
      await expect(child.exit).rejects.toMatchObject({ code: 'cancelled' });
      await until(`the end of ${child.pid}`, () => !isAlive(child.pid));
    }
  });

  it('is killed when its connection is lost', async () => {
    const other = await connectGuest(agent.socketPath);
    const child = await other.exec({ argv: ['sleep', '1000'] });
    expect(isAlive(child.pid)).toBe(true);
    other.close();
    await other.closed;
    await expect(child.exit).rejects.toMatchObject({ code: 'unavailable' });
    await until(`the end of ${child.pid}`, () => !isAlive(child.pid));
    await expect(other.exec({ argv: ['true'] })).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('what a process leaves behind', () => {
  it('does not hold up its exit, and is not killed by writing', async () => {
    const go = join(agent.dir, 'go');
    const wrote = join(agent.dir, 'wrote');
    const script = `(while [ ! -e ${go} ]; do sleep 0.02; done; echo late && touch ${wrote}) & echo early`;
    expect(await run(agent.guest, shell(script))).toEqual({ stdout: 'early\n', stderr: '', exit: exited(0) });
    await run(agent.guest, ['touch', go]);
    await until(
      'the mark of the background process',
      async () => (await run(agent.guest, ['test', '-e', wrote])).exit.code === 0,
    );
  });

  it('has all that was written before the end, however slow the reader', async () => {
    const note = join(agent.dir, 'background-pid');
    const script = `sleep 1000 & echo $! > ${note}; head -c 3000000 /dev/zero`;
    const child = await agent.guest.exec({ argv: shell(script) });
    let bytes = 0;
    for await (const { data } of child.output) {
      bytes += data.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(bytes).toBe(3_000_000);
    expect(await child.exit).toEqual(exited(0));
    process.kill(Number(readFileSync(note, 'utf8')), 'SIGKILL');
  });
});

describe('bad requests to execute', () => {
  it.each([
    [{ argv: ['no-such-program'] }, 'not_found', /no program no-such-program in PATH/],
    [{ argv: ['/no/such/program'] }, 'not_found', /cannot execute/],
    [{ argv: ['/etc/passwd'] }, 'forbidden', /cannot execute/],
    [{ argv: ['true'], cwd: '/no/such/place' }, 'not_found', /working directory/],
    [{ argv: ['true'], user: 'no-such-user' }, 'not_found', /no user no-such-user/],
    [{ argv: ['true'], env: { 'A=B': '1' } }, 'invalid_argument', /environment/],
    [{ argv: ['ec\0ho'] }, 'invalid_argument', /NUL/],
    [{ argv: [''] }, 'invalid_argument', /argv/],
    [{ argv: ['true'], timeoutMs: -1 }, 'invalid_argument', /timeout/],
  ] as const)('%j is refused as %s', async (request, code, message) => {
    await expect(agent.guest.exec(request as never)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  });

  it('what is missing in the sandbox is looked for in the sandbox, says the hint', async () => {
    await expect(agent.guest.exec({ argv: ['no-such-program'] })).rejects.toMatchObject({
      hint: expect.stringContaining('inside the sandbox'),
    });
  });

  it('that may not be executed is told from a token that does not reach it', async () => {
    const error = await agent.guest.exec({ argv: ['/etc/passwd'] }).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ code: 'forbidden', hint: expect.stringContaining('owner and mode') });
  });

  it.each([
    [{ argv: ['no-such-program'] }, { errno: 'ENOENT', step: 'program' }],
    [{ argv: ['/etc/passwd'] }, { errno: 'EACCES', step: 'program' }],
    [
      { argv: ['true'], cwd: '/no/such/place' },
      { errno: 'ENOENT', step: 'cwd' },
    ],
  ] as const)('%j fails at a step that programs can tell from others', async (request, details) => {
    await expect(agent.guest.exec(request)).rejects.toMatchObject({ details });
  });

  it('thousands of variables and a megabyte of arguments are fine, and too much is refused clearly', async () => {
    const env = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`VARIABLE_${i}`, `${i}`]));
    expect((await run(agent.guest, { argv: shell('env | grep -c ^VARIABLE_'), env })).stdout).toBe('5000\n');
    const words = Array.from({ length: 10_000 }, () => 'x'.repeat(100));
    expect((await run(agent.guest, { argv: ['sh', '-c', 'echo $#', 'sh', ...words] })).stdout).toBe(
      '10000\n',
    );
    await expect(agent.guest.exec({ argv: ['echo', 'x'.repeat(200_000)] })).rejects.toMatchObject({
      code: 'too_large',
    });
    await expect(agent.guest.exec({ argv: ['echo', 'x'.repeat(5_000_000)] })).rejects.toMatchObject({
      code: 'too_large',
    });
    expect((await run(agent.guest, ['echo', 'still here'])).stdout).toBe('still here\n');
  });
});

describe('PID 1', () => {
  it('reaps what others leave to it, and ends in order', async () => {
    const init = await startAgent({ asInit: true });
    try {
      expect(
        (await run(init.guest, shell('for i in 1 2 3 4 5 6 7 8; do (true & (true &)) & done; wait'))).exit,
      ).toEqual(exited(0));
      await until(
        'no zombie',
        async () => !(await run(init.guest, ['ps', '-eo', 'stat='])).stdout.includes('Z'),
      );
      expect((await run(init.guest, shell('cut -d" " -f4 /proc/self/stat'))).stdout.trim()).not.toBe('0');
      const stubborn = await init.guest.startJob({
        argv: shell('trap "" TERM; while :; do sleep 0.05; done'),
      });
      expect(stubborn.running).toBe(true);
      await init.guest.shutdown(200);
      await until('the end of PID 1', () => init.process.exitCode !== null);
      expect(init.process.exitCode).toBe(0);
    } finally {
      await init.stop();
    }
  });

  it('keeps no descriptor of what has ended', async () => {
    const descriptors = () => readdirSync(`/proc/${agent.pid}/fd`).length;
    await run(agent.guest, ['true']);
    const before = descriptors();
    for (let i = 0; i < 100; i++) await run(agent.guest, ['true']);
    expect(descriptors()).toBeLessThanOrEqual(before);
  });
});

function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
