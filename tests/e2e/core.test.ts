import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const cli = join(import.meta.dirname, '../../packages/cli/src/main.ts');
const nobody = { uid: 65_534, gid: 65_534 };
const mebibyte = 1024 ** 2;

const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
  work.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
  );

test('up without root says that root is missing and how to get it, and leaves nothing', ({ skip }) => {
  // Somebody who is not root must be able to start Node at all, which depends on where it lies.
  skip(
    spawnSync(process.execPath, ['-e', '0'], nobody).status !== 0,
    'Node cannot be started by others here',
  );
  const directory = mkdtempSync(join(tmpdir(), 'coppice-nobody-'));
  try {
    chownSync(directory, nobody.uid, nobody.gid);
    const env = { PATH: process.env.PATH, HOME: directory, COPPICE_HOME: join(directory, 'home') };
    const result = spawnSync(process.execPath, [cli, 'up'], {
      ...nobody,
      cwd: directory,
      env,
      encoding: 'utf8',
    });
    expect(result.status).not.toBe(0);
    expect(result.stderr).toMatch(/lacks: .*root/);
    expect(result.stderr).toContain('sudo');
    expect(result.stderr).not.toMatch(/^\s+at /m);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

describe('the daemon', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  test('passes a file of 2 GiB in and out without holding it', { timeout: 900_000 }, async () => {
    await using sandbox = await daemon.client.sandboxes.create({ disk_mb: 4096 });
    const total = 2048;
    const noise = randomBytes(mebibyte);
    const [sent, received] = [createHash('sha256'), createHash('sha256')];
    /** Each block of it is another: one that is lost, doubled or moved shows. */
    async function* source(): AsyncGenerator<Buffer> {
      for (let index = 0; index < total; index += 1) {
        const chunk = Buffer.from(noise);
        for (let at = 0; at < mebibyte; at += 4096) chunk.writeUInt32LE(index, at);
        sent.update(chunk);
        yield chunk;
      }
    }
    // The high-water mark of the daemon's memory begins anew here.
    writeFileSync(`/proc/${daemon.pid}/clear_refs`, '5');
    const peakMb = (): number =>
      Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${daemon.pid}/status`, 'utf8'))![1]) / 1024;
    const before = peakMb();
    await sandbox.files.write('/root/large', source());
    let bytes = 0;
    for await (const part of sandbox.files.readStream('/root/large')) {
      bytes += part.length;
      received.update(part);
    }
    expect(bytes).toBe(total * mebibyte);
    expect(received.digest('hex')).toBe(sent.digest('hex'));
    expect(peakMb() - before).toBeLessThan(256);
  });

  test('refuses to remove an image while a sandbox or a snapshot stands on it, saying which', async () => {
    const sandbox = await daemon.client.sandboxes.create({ name: 'stander' });
    const { id } = await sandbox.snapshot({ name: 'left' });
    const refused = await failure(daemon.client.images.remove('tiny'));
    expect(refused).toMatchObject({
      code: 'in_use',
      message: expect.stringContaining('the sandbox stander'),
    });
    await sandbox.destroy();
    expect((await failure(daemon.client.images.remove('tiny'))).code).toBe('in_use');
    await daemon.client.snapshots.delete(id);
    expect((await daemon.client.images.list()).map(({ name }) => name)).toContain('tiny');
  });
});

test('a token that calls too often is told to wait, and how long; another is not', async () => {
  await using daemon = await RunningDaemon.start({
    config: { limits: { requests_per_s: 1, burst: 40 } },
    image: false,
  });
  const other = (await daemon.client.tokens.create({ name: 'other' })).secret;
  const ask = (token: string) =>
    fetch(`${daemon.url}/v1/sandboxes`, { headers: { authorization: `Bearer ${token}` } });
  let answer = await ask(daemon.token);
  for (let calls = 0; answer.status === 200 && calls < 1000; calls += 1) answer = await ask(daemon.token);
  expect(answer.status).toBe(429);
  expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(await answer.json()).toMatchObject({ code: 'rate_limited', hint: expect.any(String) });
  expect((await ask(other)).status).toBe(200);
});
