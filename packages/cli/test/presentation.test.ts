import {
  asInterrupted,
  describeError,
  formatBytes,
  formatCommand,
  formatDuration,
  printable,
} from '@coppice/console';
import type { Change, LineageNode } from '@coppice/protocol';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import { describe, expect, test } from 'vitest';
import { daemonFailure } from '../src/daemon/daemon-failure.ts';
import { exitCodeOf } from '../src/exit-code.ts';
import { changeLine, changeSummary } from '../src/ui/changes.ts';
import { drawLineage } from '../src/ui/lineage.ts';
import { logLine } from '../src/ui/log-line.ts';
import { describeNetwork } from '../src/ui/network.ts';
import { progressText } from '../src/ui/progress.ts';
import { table } from '../src/ui/table.ts';

/** A place without colours and without a width. */
const plain = { columns: undefined, paint: (_style: string, text: string) => text };

test('sizes and durations are short and have units', () => {
  expect([0, 12, 1023, 1536, 3 * 1024 ** 3].map(formatBytes)).toEqual([
    '0 B',
    '12 B',
    '1023 B',
    '1.5 KiB',
    '3.0 GiB',
  ]);
  expect([0, 45, 90, 3600, 90_061].map(formatDuration)).toEqual(['0s', '45s', '1m 30s', '1h', '1d 1h']);
});

test('a command is shown as a shell would read it', () => {
  expect(formatCommand(['sh', '-c', "echo 'a b'"])).toBe(`sh -c 'echo '\\''a b'\\'''`);
});

test('names from inside a sandbox cannot move the cursor or change colours', () => {
  expect(printable('a\x1b[31mred\u009b2J')).toBe('a\\x1b[31mred\\x9b2J');
  expect(table(['NAME'], [['a\nb\x07']], 'none')).toBe('NAME\na b\\x07');
  expect(printable('a\u202etxt.exe\u2069')).toBe('a\\u202etxt.exe\\u2069');
  expect(progressText('copying', { done: 1, detail: 'a\x1b]0;x\x07\nb' }, 0)).toMatch(
    /a\\x1b\]0;x\\x07\\nb$/,
  );
});

test('a name with a line end in it does not look like two', () => {
  const spoof = { ...change({ path: '/f (1 B)\nA /innocent' }), size_after: 5 };
  expect(changeLine(spoof, plain)).toBe('A /f (1 B)\\nA /innocent (5 B)');
});

test('columns line up, and an empty table says so', () => {
  expect(
    table(
      ['NAME', 'STATE'],
      [
        ['a', 'running'],
        ['longer', 'stopped'],
      ],
      'none',
    ),
  ).toBe('NAME    STATE\na       running\nlonger  stopped');
  expect(table(['NAME'], [], 'none')).toBe('none');
});

const change = (fields: Partial<Change>): Change => ({
  path: '/f',
  change: 'added',
  kind: 'file',
  size_before: null,
  size_after: null,
  mode_before: null,
  mode_after: null,
  ...fields,
});

test('changes say what and how much', () => {
  expect(
    [
      change({ size_after: 12 }),
      change({ change: 'removed', size_before: 2048 }),
      change({ change: 'modified', size_before: 1, size_after: 2 }),
      change({ change: 'mode', mode_before: '644', mode_after: '755' }),
      change({ kind: 'directory' }),
      change({ kind: 'symlink' }),
    ].map((one) => changeLine(one, plain)),
  ).toEqual([
    'A /f (12 B)',
    'D /f (was 2.0 KiB)',
    'M /f (1 B -> 2 B)',
    'P /f (mode 644 -> 755)',
    'A /f/',
    'A /f (symlink)',
  ]);
  expect(changeSummary({ added: 1, removed: 0, modified: 2, mode: 0 })).toBe('1 added, 2 modified');
  expect(changeSummary({ added: 0, removed: 0, modified: 0, mode: 0 })).toBe('no difference');
});

test('a network policy is one line', () => {
  const none = {
    allow_internet: false,
    allow_inter_sandbox: false,
    allowed_ports: [],
    allow: [],
    deny: [],
    allow_host_ports: [],
    ask: false,
  };
  expect(describeNetwork(none)).toBe('none');
  expect(describeNetwork({ ...none, allow_host_ports: [5432] })).toBe('port 5432 of the host');
  expect(describeNetwork({ ...none, allow_internet: true, allowed_ports: [443], deny: ['192.0.2.1'] })).toBe(
    'internet, ports 443 only, never 192.0.2.1',
  );
  expect(describeNetwork({ ...none, allowed_ports: [443] })).toBe('none, ports 443 only');
  const names = ['registry.example', '*.github.com:443'];
  expect(describeNetwork({ ...none, allow: names, deny: ['gist.github.com'] })).toBe(
    'registry.example, *.github.com:443, never gist.github.com',
  );
  // Beside names the internet is not open, whatever else the policy says.
  expect(describeNetwork({ ...none, allow_internet: true, allow: names })).toBe(
    'registry.example, *.github.com:443',
  );
});

describe('lineage', () => {
  const node = (fields: Partial<LineageNode> & Pick<LineageNode, 'id' | 'kind'>): LineageNode => ({
    name: fields.id,
    parent: null,
    grown_from: null,
    merged: [],
    restored: null,
    state: null,
    automatic: false,
    has_memory: false,
    memory_bytes: null,
    memory_used_bytes: null,
    referenced_bytes: null,
    used_bytes: null,
    created_at: `2026-01-01T00:00:0${fields.id.length}Z`,
    ...fields,
  });
  const plain = (_: string, text: string): string => text;

  test('shows what grew from what, with states, sizes and memory', () => {
    const lines = drawLineage(
      [
        node({ id: 'host', kind: 'image', referenced_bytes: 1024 }),
        node({ id: 'dev', kind: 'sandbox', parent: 'host', state: 'running' }),
        node({ id: 'base', kind: 'snapshot', parent: 'dev', referenced_bytes: 2048, used_bytes: 10 }),
        node({ id: 'forked', kind: 'sandbox', parent: 'base', state: 'paused' }),
        node({ id: 'undoes', kind: 'snapshot', parent: 'dev', automatic: true }),
        node({ id: 'memory!', kind: 'snapshot', parent: 'dev', has_memory: true, memory_bytes: 4096 }),
      ],
      plain,
    );
    expect(lines).toEqual([
      '◆ host  image  1.0 KiB',
      '└─ ● dev  running',
      '   ├─ ○ base  snapshot  2.0 KiB (10 B own)',
      '   │  └─ ● forked  paused',
      '   ├─ ○ undoes  snapshot, automatic',
      '   └─ ○ memory!  snapshot  +memory 4.0 KiB',
    ]);
  });

  test('what grew from something that is gone stands at the root', () => {
    expect(drawLineage([node({ id: 'a', kind: 'snapshot', parent: 'gone' })], plain)).toEqual([
      '○ a  snapshot',
    ]);
  });
});

test('progress shows a bar when the end is known, and what was done otherwise', () => {
  expect(progressText('copying', { done: 512, total: 1024 }, 2000)).toMatch(
    /^copying {2}█{12}░{12} 50 % {2}512 B of 1\.0 KiB {2}2 s$/,
  );
  expect(progressText('copying', { done: 1024, detail: 'a.txt' }, 1000)).toMatch(
    / copying {2}1\.0 KiB {2}1 s {2}a\.txt$/,
  );
});

test('the exit code is the one a shell would give', () => {
  expect(exitCodeOf({ exit_code: 3, signal: null, timed_out: false })).toBe(3);
  expect(exitCodeOf({ exit_code: null, signal: 9, timed_out: false })).toBe(137);
  expect(exitCodeOf({ exit_code: null, signal: 9, timed_out: true })).toBe(124);
});

describe('errors', () => {
  test('every code has its own exit code and says what to do next', () => {
    for (const [code, kind] of Object.entries(errorKinds)) {
      const failure = describeError(new CoppiceError(code as keyof typeof errorKinds, 'it failed'));
      expect(failure.exitCode).toBe(kind.exitCode);
      expect(failure.text).toBe(`error: it failed\nhint: ${kind.hint}`);
    }
  });

  test('a file that is not there is no crash', () => {
    const missing = Object.assign(new Error('ENOENT'), { code: 'ENOENT', path: '/nowhere' });
    expect(describeError(missing)).toMatchObject({ exitCode: 5, json: { error: { code: 'not_found' } } });
  });

  test('a connection that ended because the command was interrupted is not called lost', () => {
    const lost = new CoppiceError('unavailable', 'the connection to the daemon was lost');
    expect(asInterrupted(lost)).toMatchObject({ code: 'cancelled', message: 'interrupted' });
    const full = new CoppiceError('no_space', 'the disk is full');
    expect(asInterrupted(full)).toBe(full);
  });

  test('why the daemon cannot start is said as it said it', () => {
    const failure = daemonFailure(11, '{"level":30}\ncoppice-daemon: needs root\nhint: Run it as root.\n');
    expect(failure).toMatchObject({ code: 'unsupported', message: 'needs root', hint: 'Run it as root.' });
    expect(daemonFailure(null, '').message).toContain('a signal');
  });
});

test('a line of the log is a sentence with its facts', () => {
  const time = Date.parse('2026-01-01T10:20:30Z');
  expect(logLine(JSON.stringify({ level: 40, time, pid: 1, msg: 'slow', sandbox: 'dev box' }))).toBe(
    "10:20:30  warning: slow sandbox='dev box'",
  );
  expect(logLine('plain words')).toBe('plain words');
});
