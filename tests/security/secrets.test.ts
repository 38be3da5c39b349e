import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Route, routes } from '@coppice/protocol';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatewayPid } from '../gateway/gateway-pid.ts';
import { jsonCall, rawCall } from './raw-call.ts';

const secrets = {
  created: 'value-given-at-creation-9c1f',
  updated: 'value-given-later-55ab',
  executed: 'value-given-to-a-command-07d2',
  forked: 'value-given-to-a-fork-c3e8',
  refused: 'value-in-a-refused-call-b7a4',
  typed: 'value-in-a-command-line-e19d',
  kept: 'value-of-the-gateway-2f60-31d8',
};
const use = {
  hosts: ['api.example.com'],
  place: { kind: 'header' as const, name: 'authorization', format: 'Bearer {}' },
};

describe('secrets', () => {
  let daemon: RunningDaemon;
  const known: Record<string, string> = { ...secrets };

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { log_level: 'debug' } });
    const sandbox = await daemon.client.sandboxes.create({
      name: 'keeper',
      env: { API_KEY: secrets.created },
    });
    known.token = daemon.token;
    known['sandbox token'] = sandbox.token!;
    known['made token'] = (await daemon.client.tokens.create({ name: 'made' })).secret;
    // A secret reaches what it was meant for; otherwise the rest would prove nothing.
    const { stdout } = await sandbox.exec('echo "$API_KEY $ONCE"', { env: { ONCE: secrets.executed } });
    expect(stdout).toBe(`${secrets.created} ${secrets.executed}\n`);
    await sandbox.update({ env: { LATER: secrets.updated } });
    await sandbox.exec(`: ${secrets.typed}`);
    await daemon.client.secrets.set('kept', secrets.kept, { use });
    const { id } = await sandbox.snapshot({ name: 'taken' });
    await sandbox.fork({ name: 'fork', env: { FORKED: secrets.forked } });
    await sandbox.restore(id);
    await sandbox.stop({ grace_s: 0 });
    await sandbox.start();
    await daemon.kill();
    await daemon.restart();
    // A stop leaves a backup of the database.
    await daemon.stop();
    await daemon.restart();
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const found = (text: string): string[] => Object.keys(known).filter((name) => text.includes(known[name]!));

  test('are in no answer of any route that reads', async () => {
    const params: Record<string, string> = { sandbox: 'keeper', snapshot: 'keeper:taken', image: 'tiny' };
    const query: Record<string, string> = {
      diff: 'from=keeper&to=fork',
      listFiles: 'path=/root',
      listEvents: 'limit=10000',
    };
    let read = 0;
    for (const [name, route] of Object.entries(routes as Record<string, Route>)) {
      if (route.method !== 'GET' || (route.answer !== 'json' && route.answer !== 'text')) continue;
      const path = route.path.replaceAll(/:(\w+)/g, (_, param: string) => params[param] ?? '1');
      const search = query[name] === undefined ? '' : `?${query[name]}`;
      const { text, status } = await rawCall(daemon.url, {
        method: 'GET',
        path: path + search,
        token: daemon.token,
      });
      expect(found(text), `${name}: ${status}`).toEqual([]);
      if (status === 200) read += 1;
    }
    expect(read).toBeGreaterThan(15);
    const { env_names: names } = await (await daemon.client.sandboxes.get('keeper')).inspect();
    expect(names).toEqual(expect.arrayContaining(['API_KEY', 'LATER']));
  });

  test('are in no error, whatever was wrong with the call that held them', async () => {
    const { refused } = secrets;
    const bodies = [
      { env: { API_KEY: `${refused}\0` } },
      { env: { 'no name': refused } },
      { env: { API_KEY: refused }, unknown: 1 },
      { env: { API_KEY: [refused] } },
      { env: { API_KEY: refused }, name: '..' },
      { env: { API_KEY: refused }, image: 'nowhere' },
    ];
    for (const body of bodies) {
      const call = { method: 'POST', path: '/v1/sandboxes', token: daemon.token };
      const answer = await rawCall(daemon.url, jsonCall(call, body));
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(found(answer.text), JSON.stringify(body)).toEqual([]);
    }
    for (const command of ['/nowhere', '/root'])
      await expect(
        daemon.client.sandboxes.at('keeper').exec([command], { env: { API_KEY: refused } }),
      ).rejects.toSatisfy((error: unknown) => found(JSON.stringify(error) + String(error)).length === 0);
    const wrong = await rawCall(daemon.url, { method: 'GET', path: '/v1/sandboxes', token: refused });
    expect([wrong.status, found(wrong.text)]).toEqual([401, []]);
  });

  test('are in no log, event or command line', async () => {
    const logs = (readdirSync(join(daemon.home, 'log'), { recursive: true }) as string[])
      .map((name) => join(daemon.home, 'log', name))
      .filter((path) => statSync(path).isFile());
    expect(logs.length).toBeGreaterThan(0);
    for (const path of logs) expect(found(readFileSync(path, 'utf8')), path).toEqual([]);
    const { events } = await daemon.client.events.list({ limit: 10_000 });
    expect(events.length).toBeGreaterThan(5);
    expect(found(JSON.stringify(events))).toEqual([]);
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      let line = '';
      try {
        line = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      } catch {
        // It has ended meanwhile.
      }
      expect(found(line), line).toEqual([]);
    }
  });

  test('of the gateway leave it by no side door: no export, no environment, no refused call, no file that is readable', async () => {
    const { kept } = secrets;
    expect((await daemon.client.secrets.list()).map(({ name }) => name)).toEqual(['kept']);
    const exported: Uint8Array[] = [];
    for await (const chunk of daemon.client.snapshots.export('keeper:taken')) exported.push(chunk);
    expect(Buffer.concat(exported).includes(kept)).toBe(false);
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      let environment = Buffer.alloc(0);
      try {
        environment = readFileSync(`/proc/${pid}/environ`);
      } catch {
        // It has ended meanwhile.
      }
      expect(environment.includes(kept), pid).toBe(false);
    }
    const wrong = [
      { use: { ...use, hosts: ['not a host'] } },
      { use: { ...use, hosts: [] } },
      { use, unknown: kept },
      { use: { ...use, place: { kind: kept, name: kept, format: '{}' } } },
    ];
    for (const rest of wrong) {
      const call = { method: 'PUT', path: '/v1/secrets/other', token: daemon.token };
      const answer = await rawCall(daemon.url, jsonCall(call, { value: kept, ...rest }));
      expect(answer.status, answer.text).toBeGreaterThanOrEqual(400);
      expect(answer.text).not.toContain(kept);
    }
    const files = (readdirSync(daemon.home, { recursive: true, withFileTypes: true }) as Dirent[])
      .filter((entry) => entry.isFile() && entry.name !== 'pool.img')
      .map(({ parentPath, name }) => join(parentPath, name))
      .filter((path) => !path.startsWith(join(daemon.home, 'pool/')));
    expect(files.some((path) => path.startsWith(join(daemon.home, 'gateway/')))).toBe(true);
    for (const path of files) expect(readFileSync(path).includes(kept), path).toBe(false);
    // Nobody but root looks into its memory, and a crash leaves no copy of it.
    const pid = gatewayPid(daemon.home);
    expect(statSync(`/proc/${pid}/environ`).uid).toBe(0);
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    expect(/^CoreDumping:\s*(\d)/m.exec(status)?.[1]).toBe('0');
  });

  test('that have to be on the disk are for the owner of the home alone', () => {
    const home = statSync(daemon.home);
    for (const name of ['token', 'coppice.db', 'config.json', 'daemon.json', 'run', 'pool', 'log']) {
      const { mode } = statSync(join(daemon.home, name));
      expect((home.mode & 0o077) === 0 || (mode & 0o077) === 0, name).toBe(true);
    }
    // The directory alone would do; the files say it once more, for whoever copies them elsewhere.
    const values = [
      'coppice.db',
      'coppice.db-wal',
      'coppice.db-shm',
      'coppice.db.backup',
      'token',
      'log/daemon.log',
    ];
    const readable = values.filter((name) => (statSync(join(daemon.home, name)).mode & 0o077) !== 0);
    expect(readable).toEqual([]);
    // The user of the gateway may pass through, where there is one.
    expect(home.mode & 0o767).toBe(0o700);
    expect((home.mode & 0o010) === 0 || home.gid >= 0x1ff00000).toBe(true);
  });

  test('are shown to no token of one sandbox either, its own included', async () => {
    const own = known['sandbox token']!;
    const paths = ['', '/snapshots', '/jobs', '/ports', '/terminals', '/stats'];
    let read = 0;
    for (const path of paths) {
      const call = { method: 'GET', path: `/v1/sandboxes/keeper${path}`, token: own };
      const { text, status } = await rawCall(daemon.url, call);
      expect(found(text), path).toEqual([]);
      if (status === 200) read += 1;
    }
    expect(read).toBeGreaterThan(2);
    const other = await rawCall(daemon.url, { method: 'GET', path: '/v1/sandboxes/fork', token: own });
    expect(other.status).toBe(403);
  });
});
