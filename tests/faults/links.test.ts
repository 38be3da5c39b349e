import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon, skipFor } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { childrenOf } from './children-of.ts';

const hasRunsc = (process.env.PATH ?? '').split(':').some((directory) => {
  try {
    return readdirSync(directory).includes('runsc');
  } catch {
    return false;
  }
});
const withoutRunsc = hasRunsc ? undefined : 'this machine has no runsc';

const typesOf = async (daemon: RunningDaemon, sandbox: Sandbox): Promise<string[]> =>
  (await daemon.client.events.list({ sandbox: sandbox.id })).events.map(({ type }) => type);

describe('the link to a sandbox that is cut', () => {
  let tools: string;
  let cutLink: string;

  beforeAll(() => {
    tools = mkdtempSync(join(tmpdir(), 'coppice-cut-'));
    cutLink = join(tools, 'cut-link');
    execFileSync('cc', ['-O1', '-o', cutLink, join(import.meta.dirname, 'cut-link.c')]);
  });
  afterAll(() => rmSync(tools, { recursive: true }));

  describe.each(['container', 'gvisor'] as const)('%s', (driver) => {
    test(
      'is made again: what ran in it runs on, and it answers',
      skipFor(driver === 'gvisor' ? withoutRunsc : undefined),
      async () => {
        await using daemon = await RunningDaemon.start({ config: { default_driver: driver } });
        const sandbox = await daemon.client.sandboxes.create({ name: 'cut' });
        const job = await sandbox.jobs.start('echo begun; sleep 600');
        const broken = sandbox.exec('echo > /root/begun; sleep 600').then(
          () => undefined,
          (error: unknown) => error,
        );
        await eventually(
          'the command runs',
          async () => (await sandbox.exec('ls /root')).stdout === 'begun\n',
        );
        expect(Number(execFileSync(cutLink, [String(daemon.pid), 'agent.sock'], { encoding: 'utf8' }))).toBe(
          1,
        );
        expect(await broken).toMatchObject({ code: 'unavailable' });
        await eventually('it answers again', async () => {
          try {
            return (await sandbox.exec('echo here')).stdout === 'here\n';
          } catch (error) {
            if (error instanceof CoppiceError && error.code === 'unavailable') return false;
            throw error;
          }
        });
        expect((await sandbox.inspect()).state).toBe('running');
        expect((await sandbox.jobs.list()).find(({ id }) => id === job.id)?.running).toBe(true);
        await sandbox.start();
        expect((await sandbox.inspect()).state).toBe('running');
        await eventually('both are told', async () =>
          (await typesOf(daemon, sandbox)).includes('sandbox.reached'),
        );
        expect(await typesOf(daemon, sandbox)).toContain('sandbox.unreached');
      },
    );
  });
});

describe('the relay of a gVisor sandbox that is killed', skipFor(withoutRunsc), () => {
  let daemon: RunningDaemon;
  let sandbox: Sandbox;

  beforeEach(async () => {
    daemon = await RunningDaemon.start({ config: { default_driver: 'gvisor' } });
    sandbox = await daemon.client.sandboxes.create({ name: 'mute' });
    await sandbox.exec('echo kept > /root/kept; sync');
  });
  afterEach(() => daemon[Symbol.asyncDispose]());

  const killRelay = (): void => {
    const file = join(daemon.home, 'gvisor/machines', sandbox.id, 'gvisor.json');
    process.kill(JSON.parse(readFileSync(file, 'utf8')).relay.pid, 'SIGKILL');
  };

  const isStartedAgain = async (): Promise<void> => {
    await sandbox.start();
    expect((await sandbox.inspect()).state).toBe('running');
    expect((await sandbox.exec('cat /root/kept')).stdout).toBe('kept\n');
  };

  test('fails the sandbox and says why; a start really starts it', async () => {
    killRelay();
    await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
    expect((await sandbox.inspect()).failure).toContain('relay');
    expect(await typesOf(daemon, sandbox)).toContain('sandbox.failed');
    expect((await daemon.client.doctor()).findings).toContainEqual(
      expect.objectContaining({ check: 'sandboxes', message: expect.stringContaining('relay') }),
    );
    await expect(sandbox.exec('true')).rejects.toMatchObject({ code: 'wrong_state' });
    await isStartedAgain();
  });

  test('while no daemon runs is found by the next one', async () => {
    await daemon.kill('SIGKILL');
    killRelay();
    await daemon.restart();
    await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
    await isStartedAgain();
  });
});

describe('the launcher of containers that is killed', () => {
  test('fails starts that it was at as unavailable, comes back by itself, and the end of sandboxes is seen', async () => {
    await using daemon = await RunningDaemon.start();
    const steady = await daemon.client.sandboxes.create({ name: 'steady' });
    const mortal = await daemon.client.sandboxes.create({ name: 'mortal' });
    const made: Sandbox[] = [];
    const abort = new AbortController();
    const work = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        try {
          made.push(await daemon.client.sandboxes.create());
          await made.pop()!.destroy();
        } catch (error) {
          if (!(error instanceof CoppiceError) || error.code !== 'unavailable') throw error;
        }
      }
    };
    const working = [work(), work()];
    for (let round = 0; round < 5; round += 1) {
      const [launcher] = childrenOf(daemon.pid, 'coppice-launch');
      if (launcher !== undefined) process.kill(launcher, 'SIGKILL');
      await eventually('another runs', () => {
        const [found] = childrenOf(daemon.pid, 'coppice-launch');
        return found !== undefined && found !== launcher;
      });
    }
    abort.abort();
    await Promise.all(working);
    expect((await steady.exec('echo here')).stdout).toBe('here\n');
    const { init } = JSON.parse(readFileSync(join(daemon.home, 'run', mortal.id, 'machine.json'), 'utf8'));
    process.kill(init.pid, 'SIGKILL');
    await eventually('its end is seen', async () => (await mortal.inspect()).state === 'failed');
    await mortal.start();
    expect((await mortal.exec('echo here')).stdout).toBe('here\n');
    await eventually('all is well', async () => (await daemon.client.health()).status === 'ok');
    const names = (await daemon.client.sandboxes.list()).map(({ name }) => name).sort();
    expect(names).toEqual(['mortal', 'steady']);
  });
});
