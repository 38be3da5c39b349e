import { whereMemoryIsFreed } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Agent, residentBytes, run, shell, startAgent } from './guest/start-agent.ts';

let agent: Agent;
beforeAll(async () => {
  agent = await startAgent();
});
afterAll(() => agent.stop());

describe('the flow of bytes', () => {
  it('carries 200 MiB of output on both streams without growing', whereMemoryIsFreed, async () => {
    const before = await residentBytes(agent.guest, agent.pid);
    const child = await agent.guest.exec({
      argv: shell('head -c 104857600 /dev/zero & head -c 104857600 /dev/zero >&2; wait'),
    });
    const bytes = { stdout: 0, stderr: 0 };
    for await (const { stream, data } of child.output) bytes[stream] += data.length;
    expect(bytes).toEqual({ stdout: 100 << 20, stderr: 100 << 20 });
    expect(await child.exit).toMatchObject({ code: 0 });
    expect((await residentBytes(agent.guest, agent.pid)) - before).toBeLessThan(8 << 20);
  });

  it('of a process whose reader stands still holds up that process and nothing else', async () => {
    const stuck = await agent.guest.exec({ argv: shell('head -c 50000000 /dev/zero; echo done >&2') });
    const iterator = stuck.output[Symbol.asyncIterator]();
    await iterator.next();
    const fast = await agent.guest.exec({ argv: shell('head -c 50000000 /dev/zero') });
    let bytes = 0;
    for await (const { data } of fast.output) bytes += data.length;
    expect(bytes).toBe(50_000_000);
    for (let i = 0; i < 20; i++) expect((await run(agent.guest, ['echo', `${i}`])).stdout).toBe(`${i}\n`);
    const rest = { stdout: 0, stderr: '' };
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
      if (next.value.stream === 'stdout') rest.stdout += next.value.data.length;
      else rest.stderr += next.value.data;
    }
    expect(rest.stdout).toBeGreaterThan(49_000_000);
    expect(rest.stderr).toBe('done\n');
    expect(await stuck.exit).toMatchObject({ code: 0 });
  }, 600_000);

  it('into a process that does not read waits, and goes on when it does', async () => {
    const child = await agent.guest.exec({ argv: shell('read go; echo going; wc -c') });
    let written = false;
    const writing = child.writeStdin(Buffer.alloc(10_000_000, 'x\n')).then(() => {
      written = true;
      return child.endStdin();
    });
    expect((await run(agent.guest, ['echo', 'beside'])).stdout).toBe('beside\n');
    let output = '';
    for await (const { data } of child.output) output += data;
    await writing;
    expect(written).toBe(true);
    expect(output).toMatch(/^going\n\s*\d+\n$/);
  }, 600_000);

  it('of a hundred processes at once comes out whole', async () => {
    const results = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        run(agent.guest, shell(`head -c 100000 /dev/zero | tr '\\0' ${i % 10}; exit ${i}`)),
      ),
    );
    for (const [i, { stdout, exit }] of results.entries()) {
      expect(exit.code).toBe(i);
      expect(stdout).toBe(String(i % 10).repeat(100_000));
    }
  }, 600_000);
});
