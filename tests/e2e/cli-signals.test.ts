import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

describe('a command that gets a signal', () => {
  let coppice: CliHome;

  beforeAll(async () => {
    coppice = await CliHome.start();
    await coppice.ok('create', 'box');
  });
  afterAll(() => coppice?.remove());

  const daemonPid = (): number =>
    (JSON.parse(readFileSync(join(coppice.home, 'daemon.json'), 'utf8')) as { pid: number }).pid;
  const runs = async (name: string): Promise<boolean> =>
    (await coppice.run(['exec', 'box', '--', 'sh', '-c', `ps -eo args | grep -q '[s]leep ${name}'`])).code ===
    0;

  test.each([
    ['SIGTERM', 143],
    ['SIGINT', 130],
    ['SIGHUP', 129],
  ] as const)('ends on %s with %i, even if the daemon does not answer', async (signal, code) => {
    const commands = [
      ['ls'],
      ['exec', 'box', '--', 'true'],
      ['exec', '--json', 'box', '--', 'true'],
      ['exec', '--tty', 'box', '--', 'true'],
      ['run', '--', 'true'],
      ['create'],
      ['snapshot', 'box'],
      ['logs', '--follow', 'box', '1'],
      ['events', '--follow'],
      ['cp', 'box:/etc/hostname', '-'],
      ['stop', 'box'],
      ['doctor'],
    ];
    const pid = daemonPid();
    process.kill(pid, 'SIGSTOP');
    try {
      const begun = commands.map((argv) => coppice.begin(argv));
      for (const command of begun) await command.signal(signal);
      expect(await Promise.all(begun.map(({ ended }) => ended))).toEqual(commands.map(() => code));
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await coppice.ok('start', 'box');
  });

  test('passes it on to the program in the sandbox, and ends with its exit code', async () => {
    const script = "trap 'echo bye; exit 7' TERM HUP INT; echo up; while :; do sleep 0.05; done";
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      const command = coppice.begin(['exec', 'box', '--', 'sh', '-c', script]);
      await command.untilSays('up');
      await command.signal(signal);
      expect(await command.ended, signal).toBe(7);
      expect(command.said, signal).toContain('bye');
    }
    const plain = coppice.begin(['exec', 'box', '--', 'sh', '-c', 'echo up; exec sleep 1111']);
    await plain.untilSays('up');
    await plain.signal('SIGTERM');
    expect(await plain.ended).toBe(143);
  });

  test('ends even if that program ignores it, and takes the program along', async () => {
    const script = "trap '' TERM; echo up; sleep 2222; sleep 2222";
    const command = coppice.begin(['exec', 'box', '--', 'sh', '-c', script]);
    await command.untilSays('up');
    await command.signal('SIGTERM');
    expect(await command.ended).toBe(143);
    await eventually('the command inside is gone', async () => !(await runs('2222')));
  });

  test('ends with the second one, while the program still handles the first', async () => {
    const script = "trap 'echo got it' TERM; echo up; while :; do sleep 0.3333; done";
    const command = coppice.begin(['exec', 'box', '--', 'sh', '-c', script]);
    await command.untilSays('up');
    await command.signal('SIGTERM');
    await command.untilSays('got it');
    await command.signal('SIGTERM');
    expect(await command.ended).toBe(143);
    await eventually('the command inside is gone', async () => !(await runs('0.3333')));
  });

  test('leaves no sandbox of `run`, or says which one it could not remove', async () => {
    const command = coppice.begin(['run', '--name', 'brief', '--', 'sh', '-c', 'echo up; exec sleep 4444']);
    await command.untilSays('up');
    await command.signal('SIGTERM');
    expect(await command.ended).toBe(143);
    expect((await coppice.json<{ name: string }[]>('ls')).map(({ name }) => name)).not.toContain('brief');

    const held = coppice.begin(['run', '--name', 'longer', '--', 'sh', '-c', 'echo up; exec sleep 4444']);
    await held.untilSays('up');
    const pid = daemonPid();
    process.kill(pid, 'SIGSTOP');
    try {
      await held.signal('SIGTERM');
      expect(await held.ended).toBe(143);
      expect(held.said).toContain('coppice rm longer');
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await coppice.run(['rm', 'longer']);
  });
});
