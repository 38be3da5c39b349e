import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { versionAdvice } from '../../packages/cli/src/daemon/version-advice.ts';
import { CliHome } from './cli-home.ts';

const execute = promisify(execFile);

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
});

test('a daemon of another version is named, with what to do', () => {
  expect(versionAdvice('0.1.0', '0.1.0')).toEqual([]);
  expect(versionAdvice('0.9.0', '0.10.0')).toEqual([
    expect.stringMatching(/older .* coppice down && coppice up/),
  ]);
  expect(versionAdvice('0.10.0', '0.9.0')).toEqual([expect.stringContaining('newer')]);
});
