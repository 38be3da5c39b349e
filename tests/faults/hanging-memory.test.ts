import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CoppiceError } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { eventually, RunningDaemon, skipFor } from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

const failure = (work: Promise<unknown>): Promise<CoppiceError> =>
  work.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => (error instanceof CoppiceError ? error : Promise.reject(error)),
  );

/**
 * Stands in for runsc or CRIU: what it is told to hang in, it hangs in for ever, in a child of its own; all else it hands on. Where
 * that is `held`, CRIU itself hangs, with every process of the sandbox in its hands. `everything` is every call.
 */
class StandIn implements Disposable {
  readonly program: string;
  readonly #dir = mkdtempSync(join(tmpdir(), 'coppice-stand-in-'));

  constructor(real: string) {
    this.program = join(this.#dir, 'program');
    writeFileSync(
      this.program,
      `#!/bin/bash
hang() { echo "$1" >> ${this.#dir}/hung; sleep 1000000; }
if [ -n "$CRTOOLS_SCRIPT_ACTION" ]; then
  [ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] && hang held
  exit 0
fi
verb=$(cat ${this.#dir}/hang 2>/dev/null)
[ "$verb" = everything ] && hang "$*"
for word in "$@"; do
  [ "$word" = "$verb" ] && hang "$word"
  [ "$word $verb" = "dump held" ] && exec ${real} "$@" --action-script "$0"
done
exec ${real} "$@"
`,
    );
    chmodSync(this.#dir, 0o755);
    chmodSync(this.program, 0o755);
  }

  hangIn(verb: string): void {
    // CRIU may run as the owner of the sandbox.
    writeFileSync(join(this.#dir, 'hung'), '', { mode: 0o666 });
    chmodSync(join(this.#dir, 'hung'), 0o666);
    writeFileSync(join(this.#dir, 'hang'), verb);
  }

  behave(): void {
    for (const name of ['hang', 'hung']) rmSync(join(this.#dir, name), { force: true });
  }

  /** What still runs of it. */
  left(): string[] {
    return readdirSync('/proc').filter((pid) => {
      if (!/^\d+$/.test(pid)) return false;
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(this.program);
      } catch {
        return false;
      }
    });
  }

  async hangs(): Promise<void> {
    const hung = join(this.#dir, 'hung');
    await eventually('it hangs', async () => existsSync(hung) && readFileSync(hung, 'utf8') !== '');
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

const criu = fileURLToPath(new URL('../../.tools/criu/criu', import.meta.url));
const runsc = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin']
  .map((folder) => join(folder, 'runsc'))
  .find((path) => existsSync(path));

const drivers = [
  { driver: 'gvisor', real: runsc, setting: 'runsc', write: 'checkpoint', read: 'restore' },
  {
    driver: 'container',
    real: existsSync(criu) ? criu : undefined,
    setting: 'criu',
    write: 'dump',
    read: 'restore',
  },
] as const;

for (const { driver, real, setting, write, read } of drivers)
  describe(
    `a ${setting} that hangs (${driver})`,
    skipFor(real === undefined ? `there is no ${setting} here` : undefined),
    () => {
      let daemon: RunningDaemon;
      let standIn: StandIn;

      beforeAll(async () => {
        standIn = new StandIn(real ?? '');
        daemon = await RunningDaemon.start({ config: { [setting]: standIn.program } });
      });
      afterEach(() => standIn?.behave());
      afterAll(async () => {
        await daemon?.[Symbol.asyncDispose]();
        standIn?.[Symbol.dispose]();
      });

      const create = async (): Promise<Sandbox> => {
        const sandbox = await daemon.client.sandboxes.create({ driver });
        await sandbox.exec('echo before > /root/mark');
        return sandbox;
      };

      const mark = async (sandbox: Sandbox): Promise<string> =>
        (await sandbox.exec('cat /root/mark')).stdout.trim();

      /** Each is begun, and hangs. */
      const works = {
        checkpoint: async (sandbox: Sandbox) => {
          standIn.hangIn(write);
          return failure(sandbox.checkpoint());
        },
        pause: async (sandbox: Sandbox) => {
          standIn.hangIn(write);
          return failure(sandbox.pause());
        },
        'fork with memory': async (sandbox: Sandbox) => {
          standIn.hangIn(write);
          return failure(sandbox.fork({ memory: true }));
        },
        resume: async (sandbox: Sandbox) => {
          await sandbox.pause();
          standIn.hangIn(read);
          return failure(sandbox.resume());
        },
        restore: async (sandbox: Sandbox) => {
          const checkpoint = await sandbox.checkpoint();
          standIn.hangIn(read);
          return failure(sandbox.restore(checkpoint.id));
        },
      };
      const names = Object.keys(works) as (keyof typeof works)[];

      /** Not awaited: it goes on for ever. */
      const begin = async (
        name: keyof typeof works,
        sandbox: Sandbox,
      ): Promise<{ refusal: Promise<CoppiceError> }> => {
        const refusal = works[name](sandbox);
        refusal.catch(() => {});
        await standIn.hangs();
        return { refusal };
      };

      test.each(names)('in a %s: the sandbox can be stopped, and runs again', async (name) => {
        const sandbox = await create();
        const { refusal } = await begin(name, sandbox);
        await sandbox.stop({ grace_s: 0 });
        expect(await refusal).toMatchObject({ code: 'cancelled' });
        standIn.behave();
        expect((await sandbox.inspect()).state).toBe('stopped');
        await sandbox.start();
        expect(await mark(sandbox)).toBe('before');
        await sandbox.destroy();
      });

      test.each(names)('in a %s: the sandbox can be destroyed', async (name) => {
        const sandbox = await create();
        const { refusal } = await begin(name, sandbox);
        await sandbox.destroy();
        expect(await refusal).toMatchObject({ code: 'cancelled' });
        expect(await failure(sandbox.inspect())).toMatchObject({ code: 'not_found' });
      });

      test.each(names)(
        'in a %s: the daemon ends when it is told to, and the next one settles it',
        async (name) => {
          const sandbox = await create();
          const { refusal } = await begin(name, sandbox);
          await daemon.stop();
          await refusal.catch(() => undefined);
          standIn.behave();
          await daemon.restart();
          const state = async () => (await sandbox.inspect()).state;
          await eventually('it is settled', async () => ['running', 'paused'].includes(await state()));
          if ((await state()) === 'paused') await sandbox.resume();
          expect(await mark(sandbox)).toBe('before');
          await sandbox.destroy();
        },
      );

      test('in a fork with memory that is being brought back: source and fork can be destroyed', async () => {
        const source = await create();
        const checkpoint = await source.checkpoint();
        standIn.hangIn(read);
        const refusal = failure(daemon.client.snapshots.fork(checkpoint.id, { name: 'half' }));
        refusal.catch(() => {});
        await standIn.hangs();
        expect(await failure(daemon.client.sandboxes.get('half').then((half) => half.stop()))).toMatchObject({
          code: 'wrong_state',
        });
        expect(await failure(daemon.client.snapshots.delete(checkpoint.id))).toMatchObject({
          code: 'in_use',
        });
        await source.destroy();
        await (await daemon.client.sandboxes.get('half')).destroy();
        expect(await refusal).toMatchObject({ code: 'cancelled' });
        standIn.behave();
        await daemon.client.snapshots.delete(checkpoint.id);
      });

      test('in a checkpoint whose caller goes away: the sandbox goes on, and nothing is left of it', async () => {
        const sandbox = await create();
        standIn.hangIn(write);
        const caller = new AbortController();
        const gone = sandbox.checkpoint({ signal: caller.signal }).catch(() => undefined);
        await standIn.hangs();
        caller.abort();
        await gone;
        standIn.behave();
        expect(await mark(sandbox)).toBe('before');
        expect(await sandbox.snapshots()).toEqual([]);
        expect(await sandbox.checkpoint()).toMatchObject({ has_memory: true });
        await sandbox.destroy();
      });

      test.each(['checkpoint', 'restore'] as const)('in a %s: a home is purged', async (name) => {
        const own = await RunningDaemon.start({ config: { [setting]: standIn.program } });
        const before = daemon;
        daemon = own;
        try {
          const { refusal } = await begin(name, await create());
          await own.kill();
          await refusal.catch(() => undefined);
          standIn.behave();
          expect(await own.purge()).toEqual([]);
        } finally {
          daemon = before;
        }
      });

      test.each(['stopped', 'killed'] as const)(
        'in every call: a home whose daemon was %s is purged with its sandboxes',
        async (how) => {
          const own = await RunningDaemon.start({ config: { [setting]: standIn.program } });
          const running = await own.client.sandboxes.create({
            driver,
            network: { allow: ['198.51.100.1'] },
          });
          await running.exec('true');
          const paused = await own.client.sandboxes.create({ driver });
          await paused.pause();
          expect(own.traces.machines()).toContain(running.id);
          standIn.hangIn('everything');
          if (how === 'killed') await own.kill();
          else await own.stop();
          expect(await own.purge()).toEqual([]);
          expect(standIn.left()).toEqual([]);
        },
      );
    },
  );

describe(
  'a CRIU that hangs with every process of the sandbox in its hands',
  skipFor(existsSync(criu) ? undefined : 'there is no criu here'),
  () => {
    let daemon: RunningDaemon;
    let standIn: StandIn;

    beforeAll(async () => {
      standIn = new StandIn(criu);
      daemon = await RunningDaemon.start({ config: { criu: standIn.program } });
    });
    afterEach(() => standIn.behave());
    afterAll(async () => {
      await daemon?.[Symbol.asyncDispose]();
      standIn?.[Symbol.dispose]();
    });

    const begin = async (): Promise<{ sandbox: Sandbox; refusal: Promise<CoppiceError> }> => {
      const sandbox = await daemon.client.sandboxes.create();
      await sandbox.exec('echo before > /root/mark');
      standIn.hangIn('held');
      const refusal = failure(sandbox.checkpoint());
      refusal.catch(() => {});
      await standIn.hangs();
      return { sandbox, refusal };
    };

    test('the sandbox can be stopped, and runs again', async () => {
      const { sandbox, refusal } = await begin();
      await sandbox.stop({ grace_s: 0 });
      expect(await refusal).toMatchObject({ code: 'cancelled' });
      standIn.behave();
      await sandbox.start();
      expect((await sandbox.exec('cat /root/mark')).stdout).toBe('before\n');
      await sandbox.destroy();
    });

    test('the daemon ends when it is told to; under the next one the sandbox can be stopped', async () => {
      const { sandbox, refusal } = await begin();
      await daemon.stop();
      await refusal.catch(() => undefined);
      standIn.behave();
      await daemon.restart();
      await sandbox.stop({ grace_s: 0 });
      await sandbox.start();
      expect((await sandbox.exec('cat /root/mark')).stdout).toBe('before\n');
      expect(await sandbox.snapshots()).toEqual([]);
      await sandbox.destroy();
    });

    test('after its time CRIU is killed, and the sandbox is said to have failed, with the reason', async () => {
      const config = JSON.parse(readFileSync(join(daemon.home, 'config.json'), 'utf8'));
      const write = (limits: object) =>
        writeFileSync(join(daemon.home, 'config.json'), JSON.stringify({ ...config, limits }));
      write({ memory_s: 3 });
      await daemon.restart();
      const { sandbox, refusal } = await begin();
      expect(await refusal).toMatchObject({ code: 'timeout' });
      await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
      expect((await sandbox.inspect()).failure).toMatch(/CRIU did not end/);
      standIn.behave();
      await sandbox.start();
      expect((await sandbox.exec('cat /root/mark')).stdout).toBe('before\n');
      await sandbox.destroy();
      write({});
      await daemon.restart();
    });
  },
);
