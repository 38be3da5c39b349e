import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { versionAdvice } from '../../packages/cli/src/daemon/version-advice.ts';
import { CliHome } from './cli-home.ts';

const execute = promisify(execFile);

/** What systemd makes of a unit, in its own words. It reads units and starts nothing, and only for others than root. */
const asSystemdReads = async (unit: string): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-units-'));
  const nobody = 65_534;
  try {
    await writeFile(join(directory, 'coppice.service'), unit);
    await chown(directory, nobody, nobody);
    const { stdout } = await execute(
      '/usr/lib/systemd/systemd',
      ['--test', '--user', '--unit=coppice.service'],
      {
        env: { SYSTEMD_UNIT_PATH: `${directory}:`, XDG_RUNTIME_DIR: directory, HOME: directory },
        cwd: '/',
        uid: nobody,
        gid: nobody,
        maxBuffer: 64 * 1024 ** 2,
      },
    ).catch(() => ({ stdout: '' }));
    return stdout;
  } finally {
    await rm(directory, { recursive: true });
  }
};

/** Below a root of its own: the machine that the tests run on gets no service. */
describe('the service', () => {
  let cli: CliHome;
  let root: string;
  let file: string;
  beforeAll(async () => {
    cli = await CliHome.make();
    root = join(cli.directory, 'root');
    file = join(root, 'etc/systemd/system/coppice.service');
  });
  afterAll(() => cli?.remove());

  test('is a unit that systemd accepts, of this home, and ends the daemon alone', async ({ skip }) => {
    const answer = await cli.json('service', 'install', '--root', root);
    expect(answer).toMatchObject({ file, home: cli.home, changed: true, started: false });
    const unit = await readFile(file, 'utf8');
    expect(unit).toMatch(/^KillMode=process$/m);
    expect(unit).toContain(`"--home" "${cli.home}" "--foreground"`);
    const [, program = ''] = /^ExecStart="([^"]+)"/m.exec(unit) ?? [];
    expect(existsSync(program)).toBe(true);
    if (!existsSync('/usr/bin/systemd-analyze')) skip('there is no systemd-analyze here');
    const { stderr } = await execute('systemd-analyze', [
      'verify',
      '--man=no',
      '--recursive-errors=no',
      file,
    ]);
    expect(stderr).not.toContain('coppice.service');
  });

  test('says whether it is there and as this version writes it, is written again, and goes', async () => {
    expect(await cli.json('service', 'install', '--root', root)).toMatchObject({ changed: false });
    expect(await cli.json('service', 'status', '--root', root)).toMatchObject({
      installed: true,
      current: true,
    });
    await cli.ok('service', 'uninstall', '--root', root);
    expect(existsSync(file)).toBe(false);
    const gone = await cli.run(['service', 'uninstall', '--root', root]);
    expect([gone.code, gone.stderr]).toEqual([5, expect.stringContaining('there is no service')]);
    expect((await cli.run(['service', 'status', '--root', root])).code).toBe(5);
    expect((await cli.run(['service', 'install', '--root', root, '--name', '../up'])).code).toBe(2);
  });

  test('of a home whose path holds what systemd reads otherwise runs that very home', async ({ skip }) => {
    const home = join(cli.directory, 'a $HOME $x %h %% "q" \'s\' \\n;');
    await cli.ok('service', 'install', '--root', root, '--home', home);
    const unit = await readFile(file, 'utf8');
    const quoted = home.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%');
    expect(unit).toContain(`"--home" "${quoted.replaceAll('$', () => '$$')}" "--foreground"`);
    expect(unit).toContain(`RequiresMountsFor="${quoted}"\n`);
    const read = await asSystemdReads(unit);
    if (!read.includes('coppice.service')) skip('there is no systemd here that reads units');
    expect(read).toContain(`RequiresMountsFor: ${home} (`);
  });

  test('is not written for a home whose path would add lines to the unit', async () => {
    const home = join(cli.directory, 'x\nExecStartPre=/bin/sh -c true\n');
    const before = await readFile(file, 'utf8');
    const refused = await cli.run(['service', 'install', '--root', root, '--home', home]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('control character')]);
    expect(await readFile(file, 'utf8')).toBe(before);
  });
});

test('a daemon of another version is named, with what to do', () => {
  expect(versionAdvice('0.1.0', '0.1.0')).toEqual([]);
  expect(versionAdvice('0.9.0', '0.10.0')).toEqual([
    expect.stringMatching(/older .* coppice down && coppice up/),
  ]);
  expect(versionAdvice('0.10.0', '0.9.0')).toEqual([expect.stringContaining('newer')]);
});
