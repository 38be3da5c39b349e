import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

interface Result {
  readonly sandbox: string;
  readonly exit_code: number | null;
  readonly output: string;
}

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.start();
  await cli.ok('create', 'dev');
});
afterAll(() => cli?.remove(), 300_000);

const names = async (): Promise<string[]> => (await cli.ok('ls', '-q')).trim().split('\n').sort();

describe('one command over many', () => {
  test('fork --run grows forks, runs a command in each and says how each ended', async () => {
    await cli.ok('exec', 'dev', 'echo 3 > /workspace/bad');
    const run = await cli.run([
      ...['--json', 'fork', 'dev', '-n', '4', '--prefix', 'try'],
      ...['--run', 'hostname; test "$(hostname)" != "try-$(cat /workspace/bad)"'],
    ]);
    expect(run.code).toBe(1);
    const { results } = JSON.parse(run.stdout) as { results: Result[] };
    expect(results.map(({ sandbox, exit_code }) => [sandbox, exit_code])).toEqual([
      ['try-1', 0],
      ['try-2', 0],
      ['try-3', 1],
      ['try-4', 0],
    ]);
    expect(results.map(({ output }) => output)).toEqual(['try-1\n', 'try-2\n', 'try-3\n', 'try-4\n']);
    expect(await names()).toEqual(['dev', 'try-1', 'try-2', 'try-3', 'try-4']);
  });

  test('fork --run --rm leaves none of them, and passes when all did', async () => {
    const before = await names();
    const text = await cli.ok('fork', 'dev', '-n', '3', '--run', 'cat /workspace/bad', '--rm');
    expect(text).toContain('3 of 3 ok');
    expect(text).toMatch(/^dev-fork-2 +ok +[\d.]+ s +3$/m);
    expect(await names()).toEqual(before);
  });

  test('each runs a command in what fits a pattern, and names what failed with its last lines', async () => {
    expect(await cli.json('each', 'try-[*', 'true').catch((error: Error) => error.message)).toContain(
      'fits nothing',
    );
    const good = await cli.json<Result[]>('each', 'try-*,dev', '--', 'echo', 'here');
    expect(good.map(({ sandbox }) => sandbox)).toEqual(['try-1', 'try-2', 'try-3', 'try-4', 'dev']);
    expect(good.every(({ output, exit_code }) => output === 'here\n' && exit_code === 0)).toBe(true);
    const bad = await cli.run(['each', 'try-?', 'echo first; echo worst >&2; exit 7']);
    expect(bad.code).toBe(1);
    expect(bad.stdout).toMatch(/== try-2\n.*worst/s);
    expect(bad.stdout).toContain('0 of 4 ok');
  });

  test('each says of a sandbox that cannot run it why, and goes on with the others', async () => {
    await cli.ok('stop', 'try-1');
    const run = await cli.run(['--json', 'each', 'try-1,try-2', 'true']);
    expect(run.code).toBe(1);
    expect(JSON.parse(run.stdout)).toMatchObject([
      { sandbox: 'try-1', exit_code: null, error: expect.stringContaining('stopped') },
      { sandbox: 'try-2', exit_code: 0, error: null },
    ]);
  });

  test('stats shows what each uses', async () => {
    const usage = await cli.json<Record<string, unknown>[]>('stats', 'try-*');
    expect(usage.map(({ name, state }) => [name, state])).toEqual([
      ['try-1', 'stopped'],
      ['try-2', 'running'],
      ['try-3', 'running'],
      ['try-4', 'running'],
    ]);
    expect(usage[1]).toMatchObject({ usage: { memory_bytes: expect.any(Number), pids: expect.any(Number) } });
    expect(await cli.ok('stats', '--once', 'dev')).toMatch(/^dev +running +[\d.]+ % .* \/ /m);
  });

  test('stop and rm take patterns, for sandboxes and for snapshots, and refuse one that fits nothing', async () => {
    expect(await cli.ok('stop', 'try-?')).toMatch(/stopped try-2\n.*stopped try-4/s);
    for (const name of ['one', 'two']) await cli.ok('snapshot', 'dev', name);
    await cli.ok('rm', 'try-*', 'dev:t*');
    expect(await names()).toEqual(['dev']);
    const left = await cli.json<{ name: string; automatic: boolean }[]>('snapshots', 'dev');
    expect(left.filter(({ automatic }) => !automatic).map(({ name }) => name)).toEqual(['one']);
    const nothing = await cli.run(['rm', 'nobody-*']);
    expect(nothing.code).toBe(5);
    expect(nothing.stderr).toContain('nobody-* fits nothing that is there');
  });
});

test('commands start in /workspace, where the files are', async () => {
  expect(await cli.ok('exec', 'dev', 'pwd')).toBe('/workspace');
  expect(await cli.ok('run', '--', 'pwd')).toBe('/workspace');
  expect(await cli.ok('exec', '--cwd', '/tmp', 'dev', 'pwd')).toBe('/tmp');
  await cli.ok('exec', '--cwd', '/', 'dev', 'rm -rf /workspace');
  expect(await cli.ok('exec', 'dev', 'pwd')).toBe('/root');
});
