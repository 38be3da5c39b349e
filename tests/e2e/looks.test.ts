import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli } from './run-cli.ts';

const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
const quoted = (words: readonly string[]): string =>
  words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');

/** What the command line shows people: on a real terminal, and through a pipe. */
describe('the command line', () => {
  let daemon: RunningDaemon;
  let dev: Sandbox;
  beforeAll(async () => {
    daemon = await RunningDaemon.start();
    dev = await daemon.client.sandboxes.create({ name: 'a-sandbox-with-a-rather-long-name-for-a-table' });
    await daemon.client.sandboxes.create({ name: 'idle' }).then((idle) => idle.stop());
    await dev.snapshot({
      name: 'a-snapshot-with-a-rather-long-name',
      note: `a note that is long ${'x'.repeat(80)}`,
    });
    await dev.exec(
      'for n in $(seq 150); do mkdir -p /srv/many/$((n % 7)); echo $n > /srv/many/$((n % 7))/$n; done',
    );
    // Restores leave undo snapshots behind.
    for (let round = 0; round < 3; round++) await dev.restore('a-snapshot-with-a-rather-long-name');
    await dev.exec(
      'for n in $(seq 150); do mkdir -p /srv/many/$((n % 7)); echo $n > /srv/many/$((n % 7))/$n; done',
    );
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const onTerminal = async (columns: number, argv: readonly string[], env: Record<string, string> = {}) => {
    const line = `stty cols ${columns} rows 24; exec ${quoted([process.execPath, program, '--home', daemon.home, ...argv])}`;
    const child = spawn('script', ['-qec', line, '/dev/null'], {
      env: { ...process.env, TERM: 'xterm', NO_COLOR: '', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let shown = '';
    child.stdout.on('data', (chunk: Buffer) => {
      shown += chunk.toString('utf8');
    });
    await once(child, 'close');
    return shown.replaceAll('\r\n', '\n');
  };

  const name = () => dev.name;
  const commands = (): Readonly<Record<string, string[]>> => ({
    ls: ['ls'],
    snapshots: ['snapshots'],
    info: ['info', name()],
    diff: ['diff', `${name()}:a-snapshot-with-a-rather-long-name`, name()],
    merge: ['merge', name(), 'idle', '--dry-run'],
    stats: ['stats', '--once'],
    tree: ['tree'],
    images: ['images'],
    error: ['info', 'nobody'],
  });
  const names = ['ls', 'snapshots', 'info', 'diff', 'stats', 'tree', 'images', 'error'] as const;

  test.each([100, 60])('fits a terminal of %i columns', async (columns) => {
    // What is told in sentences is wrapped by the terminal; a tree is as deep as it is.
    for (const what of ['ls', 'snapshots', 'info', 'stats', 'images'] as const) {
      const lines = stripVTControlCharacters(await onTerminal(columns, commands()[what]!)).split('\n');
      expect(
        lines.filter((line) => [...line].length > columns),
        what,
      ).toEqual([]);
      expect(lines.length, what).toBeGreaterThan(1);
    }
  });

  test('is coloured on a terminal, a state alike wherever it is shown', async () => {
    for (const what of names) expect(await onTerminal(100, commands()[what]!), what).toContain('\x1b[');
    for (const what of ['ls', 'stats', 'tree', 'info'] as const)
      expect(await onTerminal(100, commands()[what]!), what).toContain('\x1b[32mrunning\x1b[39m');
    for (const what of ['ls', 'stats', 'tree'] as const)
      expect(await onTerminal(100, commands()[what]!), what).toContain('\x1b[33mstopped\x1b[39m');
    expect(await onTerminal(100, commands().error!)).toMatch(
      /\x1b\[31merror:\x1b\[39m .*\n\x1b\[36mhint:\x1b\[39m/,
    );
  });

  test('is plain with NO_COLOR, on a dumb terminal and through a pipe, where nothing is cut or folded', async () => {
    for (const what of names) {
      expect(await onTerminal(100, commands()[what]!, { NO_COLOR: '1' }), what).not.toContain('\x1b[');
      expect(await onTerminal(100, commands()[what]!, { TERM: 'dumb' }), what).not.toContain('\x1b[');
      const { stdout, stderr } = await runCli(daemon, ...commands()[what]!);
      expect(stdout + stderr, what).not.toContain('\x1b[');
      expect(stdout, what).not.toContain('…');
    }
    const { stdout } = await runCli(daemon, 'snapshots');
    expect(stdout.match(/before-restore/g)).toHaveLength(3);
    expect((await runCli(daemon, ...commands().diff!)).stdout.split('\n').length).toBeGreaterThan(150);
  });

  test('folds automatic snapshots and large diffs, and shows them when asked to', async () => {
    const snapshots = await onTerminal(100, ['snapshots']);
    expect(snapshots).toMatch(/and 3 automatic snapshots \(.+ own\): --all/);
    expect(snapshots).not.toContain('before-restore');
    expect((await onTerminal(100, ['snapshots', '--all'])).match(/before-restore/g)).toHaveLength(3);
    const tree = await onTerminal(100, ['tree']);
    expect(tree).toContain('3 automatic snapshots');
    expect((await onTerminal(100, ['tree', '--all'])).match(/before-restore/g)).toHaveLength(3);
    const diff = stripVTControlCharacters(await onTerminal(100, commands().diff!));
    const folded = [...diff.matchAll(/^… \/srv\/many\/\d\/ \((\d+) added\)$/gm)].map((found) =>
      Number(found[1]),
    );
    const summary = /^(\d+) added/m.exec(diff.split('\n').at(-2)!)!;
    expect(folded).toHaveLength(7);
    expect(folded.reduce((sum, count) => sum + count, 0)).toBe(150);
    // The directories themselves, and what else changed, are counted in the last line alone.
    expect(Number(summary[1])).toBeGreaterThanOrEqual(150);
    const whole = await onTerminal(100, [...commands().diff!, '--all']);
    expect(whole.match(/\/srv\/many\/\d\/\d+ /g)).toHaveLength(150);
  });

  test('shows in ls what each uses and how long nobody did, and sizes that add up', async () => {
    const list = stripVTControlCharacters(await onTerminal(140, ['ls']));
    expect(list).toMatch(/^NAME .*MEMORY .*IDLE/m);
    expect(list).toMatch(/running .* [\d.]+ [KM]iB of \d+ MiB .* (\d+s|in use) /);
    expect(list).toMatch(/^idle +stopped .* - /m);
    for (const { referenced_bytes: all, used_bytes: own } of await dev.snapshots())
      if (all !== null && own !== null) expect(own).toBeLessThanOrEqual(all);
  });

  test('colours the lines of one file that differ', async () => {
    await dev.exec("printf 'one\\ntwo\\n' > /etc/shown");
    const diff = await onTerminal(100, [...commands().diff!, '/etc/shown']);
    expect(diff).toContain('\x1b[32m+one\x1b[39m');
    expect(diff).toContain('\x1b[36m@@');
  });
});
