import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { workspaceMount } from '@coppice/protocol';
import { Coppice, type CoppiceError, type Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { HostCanary } from './host-canary.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => existsSync(`${directory}/runsc`));

/** Swaps two names for as long as it lives. */
const swapScript = `
import ctypes, platform, sys
libc = ctypes.CDLL(None)
renameat2, here, exchange = {"x86_64": 316, "aarch64": 276}[platform.machine()], -100, 2
a, b = (path.encode() for path in sys.argv[1:3])
while libc.syscall(renameat2, here, a, here, b, exchange) == 0: pass
`;

describe.each([
  { driver: 'container', missing: false },
  { driver: 'gvisor', missing: !hasRunsc },
] as const)('the workspace directory of a sandbox of the driver $driver', ({ driver, missing }) => {
  let daemon: RunningDaemon;
  let canary: HostCanary;
  let parent: string;
  let given: string;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());
  beforeEach(({ skip }) => {
    if (missing) skip('this machine has no runsc');
    canary = new HostCanary();
    parent = realpathSync(mkdtempSync(join(tmpdir(), 'coppice-swap-')));
    given = join(parent, 'given');
    mkdirSync(given);
    writeFileSync(join(given, 'own'), 'mine\n');
  });
  afterEach(() => {
    canary?.[Symbol.dispose]();
    if (parent !== undefined) rmSync(parent, { recursive: true, force: true });
  });

  const create = () => daemon.client.sandboxes.create({ driver, mounts: [workspaceMount(given)] });

  /** Who owns a directory above needs no more than the token of the sandbox to start it. */
  const withOwnToken = (sandbox: Sandbox): Sandbox =>
    new Coppice({ url: daemon.url, token: sandbox.token! }).sandboxes.at(sandbox.id);

  test('leads nowhere when it became a link, and is taken again when it is back', async () => {
    await using sandbox = await create();
    const own = withOwnToken(sandbox);
    await own.stop();
    renameSync(given, `${given}-away`);
    symlinkSync(canary.directory, given);
    const failure = await own.start().then(
      () => own.exec('cat /workspace/secret; echo x > /workspace/planted'),
      (error: unknown) => error,
    );
    expect(canary.damage()).toEqual([]);
    expect(failure).toMatchObject({
      code: 'conflict',
      message: expect.stringContaining(`the directory ${given}`),
      hint: expect.stringContaining('Put the directory back'),
    });
    rmSync(given);
    renameSync(`${given}-away`, given);
    await own.start();
    expect((await own.exec('cat /workspace/own')).stdout).toBe('mine\n');
  });

  test('is not taken when another directory stands in its place, though its path is the same', async () => {
    await using sandbox = await create();
    await sandbox.stop();
    renameSync(given, `${given}-away`);
    mkdirSync(given);
    await expect(sandbox.start()).rejects.toMatchObject({ code: 'conflict' });
    expect((await sandbox.inspect()).state).toBe('stopped');
  });

  test('is not taken when a directory above it became a link', async () => {
    await using sandbox = await create();
    await sandbox.stop();
    mkdirSync(join(canary.directory, 'given'));
    renameSync(parent, `${parent}-away`);
    symlinkSync(canary.directory, parent);
    try {
      await expect(sandbox.start()).rejects.toMatchObject({ code: 'conflict' });
    } finally {
      rmSync(parent);
      renameSync(`${parent}-away`, parent);
    }
  });

  test('of one sandbox is not led elsewhere by another whose own is above it', async () => {
    await using outer = await daemon.client.sandboxes.create({ driver, mounts: [workspaceMount(parent)] });
    await using inner = await create();
    await inner.stop();
    const { exit_code: code } = await outer.exec(
      `cd /workspace && mv given given-away && ln -s ${canary.directory} given`,
    );
    expect(code).toBe(0);
    await expect(inner.start()).rejects.toMatchObject({ code: 'conflict' });
    expect(canary.damage()).toEqual([]);
  });

  test('may neither hold the home of the daemon nor lie in it', async () => {
    for (const workspace of [daemon.home, join(daemon.home, 'images'), realpathSync(tmpdir()), '/'])
      await expect(
        daemon.client.sandboxes.create({ driver, mounts: [workspaceMount(workspace)] }),
      ).rejects.toMatchObject({
        code: 'invalid_argument',
        message: expect.stringContaining('overlap'),
      });
  });

  test('is bound to what stands there when a daemon first finds a sandbox of an earlier version', async () => {
    await using sandbox = await create();
    await sandbox.stop();
    await daemon.stop();
    const database = new DatabaseSync(join(daemon.home, 'coppice.db'));
    database
      .prepare("UPDATE sandboxes SET mounts = json_replace(mounts, '$[0].identity', NULL) WHERE id = ?")
      .run(sandbox.id);
    database.close();
    await daemon.restart();
    renameSync(given, `${given}-away`);
    mkdirSync(given);
    await expect(sandbox.start()).rejects.toMatchObject({ code: 'conflict' });
  });

  test('is never another one, however often it is swapped while sandboxes start on it', async () => {
    const link = join(parent, 'link');
    symlinkSync(canary.directory, link);
    const swapper = spawn('python3', ['-c', swapScript, given, link], { stdio: 'ignore' });
    try {
      const outcomes = await Promise.all(
        Array.from({ length: 12 }, async () => {
          try {
            await using sandbox = await create();
            return (await sandbox.exec('ls /workspace; echo x > /workspace/planted')).stdout.split('\n')[0];
          } catch (error) {
            return (error as CoppiceError).code;
          }
        }),
      );
      expect(
        outcomes.filter((outcome) => !['own', 'conflict', 'invalid_argument'].includes(outcome!)),
      ).toEqual([]);
    } finally {
      swapper.kill('SIGKILL');
      await once(swapper, 'exit');
    }
    expect(canary.damage()).toEqual([]);
  });
});
