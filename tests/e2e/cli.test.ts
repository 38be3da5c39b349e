import { once } from 'node:events';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { errorKinds } from '@coppice/protocol';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

let cli: CliHome;
beforeAll(async () => {
  cli = await CliHome.start();
  await cli.ok('create', 'dev');
});
afterAll(() => cli?.remove(), 300_000);

const errorOf = (stderr: string) => (JSON.parse(stderr) as { error: Record<string, string> }).error;

/** A port that nobody else takes when it is let go: the kernel hands out none of these by itself. */
const holdPort = async (): Promise<{ server: Server; port: number }> => {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const server = createServer();
    server.listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (isFree) return { server, port };
  }
};

describe('the daemon', () => {
  test('says that it runs, and a second start says so too', async () => {
    const status = await cli.json('status');
    expect(status).toMatchObject({ running: true, status: 'ok', home: cli.home });
    const again = await cli.json('up', '--detach');
    expect(again).toMatchObject({ already_running: true, pid: status.pid });
  });

  test('up says when config.json has changed since it started, and not once it was started again', async () => {
    const config = join(cli.home, 'config.json');
    const before = await readFile(config, 'utf8');
    expect(await cli.ok('up', '--detach')).not.toContain('config.json');
    await writeFile(config, JSON.stringify({ ...JSON.parse(before), log_level: 'debug' }));
    expect(await cli.ok('up', '--detach')).toContain('config.json has changed since it started');
    expect(await cli.json('up', '--detach')).toMatchObject({ config_changed: true });
    await cli.ok('down');
    expect(await cli.ok('up', '--detach')).not.toContain('config.json');
    await writeFile(config, before);
  });

  test('the help groups the commands under headings, each of them under one', async () => {
    const help = await cli.ok('help');
    const headings = help.split('\n').filter((line) => /^[A-Z].*:$/.test(line) && line !== 'Options:');
    expect(headings.length).toBeGreaterThan(5);
    expect(help).not.toContain('\nCommands:');
    for (const name of ['up', 'create', 'exec', 'restore', 'export', 'net', 'images', 'mcp', 'workspace'])
      expect(help.match(new RegExp(`^  ${name} `, 'gm'))).toHaveLength(1);
  });

  test('sandboxes go on while it is down, and the next start finds them', async () => {
    const name = await cli.ok('create');
    const { id } = await cli.json<{ id: number }>('exec', '--detach', name, '--', 'sleep', '1000000');
    expect(await cli.json('down')).toMatchObject({ was_running: true, purged: false });
    expect((await cli.run(['status'])).code).toBe(errorKinds.unavailable.exitCode);
    const without = await cli.run(['ls', '--json']);
    expect(without.code).toBe(errorKinds.unavailable.exitCode);
    expect(errorOf(without.stderr)).toMatchObject({ code: 'unavailable' });
    await cli.ok('up', '--detach');
    const jobs = await cli.json<{ id: number; running: boolean }[]>('jobs', name);
    expect(jobs).toEqual([expect.objectContaining({ id, running: true })]);
    await cli.ok('rm', name);
  });

  test('in front it shows where it listens until Ctrl-C, which stops it', async () => {
    await cli.ok('down');
    const front = cli.begin(['up']);
    await front.untilSays('is up: http://');
    expect((await cli.run(['status'])).code).toBe(0);
    front.interrupt();
    expect(await front.ended).toBe(0);
    expect((await cli.run(['status'])).code).toBe(errorKinds.unavailable.exitCode);
    await cli.ok('up', '--detach');
  });

  test('up --port goes before config.json, and a port that is taken or another than it has is refused', async () => {
    await cli.ok('down');
    const { server: taken, port } = await holdPort();
    const refused = await cli.run(['up', '--detach', '--port', String(port)]);
    expect(refused.code).toBe(errorKinds.in_use.exitCode);
    expect(refused.stderr).toMatch(new RegExp(`:${port} is taken.*\\nhint: .*coppice up --port`));
    taken.close();
    await once(taken, 'close');
    expect(await cli.json('up', '--detach', '--port', String(port))).toMatchObject({
      already_running: false,
      url: `http://127.0.0.1:${port}`,
      config_changed: false,
    });
    await cli.ok('up', '--port', String(port));
    const elsewhere = await cli.run(['up', '--port', '1']);
    expect(elsewhere.code).toBe(errorKinds.wrong_state.exitCode);
    expect(elsewhere.stderr).toMatch(/runs already, and listens at .*\nhint: .*coppice down/);
    await cli.ok('down');
    const tooLarge = await cli.run(['up', '--port', '70000']);
    expect(tooLarge.code).toBe(errorKinds.invalid_argument.exitCode);
    expect(tooLarge.stderr).toContain('0 to 65535');
    await cli.ok('up', '--detach');
  });

  test('doctor says engine, driver and findings, and its exit code whether all is well', async () => {
    const { code, stdout } = await cli.run(['doctor', '--json']);
    const doctor = JSON.parse(stdout) as Record<string, unknown>;
    expect(doctor).toMatchObject({
      engine: expect.any(String),
      driver: 'container',
      findings: expect.any(Array),
    });
    expect(code === 0).toBe(doctor.healthy);
  });

  test('a purge must be confirmed', async () => {
    const { code, stderr } = await cli.run(['down', '--purge']);
    expect(code).toBe(errorKinds.invalid_argument.exitCode);
    expect(stderr).toContain('--yes');
    expect((await cli.run(['status'])).code).toBe(0);
  });
});

describe('update', () => {
  test('changes what a sandbox is while it runs, and only what was named', async () => {
    const name = await cli.ok(
      'create',
      '--memory',
      '128m',
      '-e',
      'OLD=1',
      '-l',
      'team=a',
      '--idle-timeout',
      '1h',
      '--idle-action',
      'stop',
    );
    const other = `${name}-other`;
    const words = [
      '--name',
      other,
      '--memory',
      '256m',
      '-e',
      'NEW=2',
      '--unset-env',
      'OLD',
      '--idle-timeout',
      'never',
    ];
    expect(await cli.ok('update', name, ...words)).toBe(other);
    expect(await cli.json('info', other)).toMatchObject({
      memory_mb: 256,
      idle_timeout_s: null,
      labels: { team: 'a' },
      state: 'running',
    });
    expect(await cli.ok('exec', other, '--', 'sh', '-c', 'echo "$OLD/$NEW"')).toBe('/2');
    await cli.ok('rm', other);
  });

  test('without a change it says what there is to change, and a value out of range changes nothing', async () => {
    const name = await cli.ok('create', '--memory', '128m');
    const nothing = await cli.run(['update', name]);
    expect(nothing).toMatchObject({ code: 2, stderr: expect.stringContaining('coppice update --help') });
    const { code } = await cli.run(['update', name, '--memory', '256m', '--cpus', '100000']);
    expect(code).toBe(2);
    expect(await cli.json('info', name)).toMatchObject({ memory_mb: 128 });
    await cli.ok('rm', name);
  });
});

describe('exec', () => {
  test('passes the exit code, the streams and binary input and output on', async () => {
    const failing = await cli.run(['exec', 'dev', '--', 'sh', '-c', 'echo out; echo err >&2; exit 7']);
    expect(failing).toMatchObject({ code: 7, stdout: 'out\n', stderr: 'err\n' });
    const binary = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 256));
    const echoed = await cli.run(['exec', 'dev', 'cat'], { input: binary });
    expect(echoed.bytes.equals(binary)).toBe(true);
  });

  test('leaves the options of the command to the command', async () => {
    expect(await cli.ok('exec', 'dev', 'echo', '-n', '--json', '--', 'x')).toBe('--json -- x');
    for (const words of [
      ['echo', '--json'],
      ['--', 'echo', '--json'],
    ])
      expect((await cli.run(['exec', 'no-such-sandbox', ...words])).stderr).toMatch(/^error: .*\nhint: /);
    const json = await cli.run(['exec', '--json', 'no-such-sandbox', 'echo', 'x']);
    expect(errorOf(json.stderr)).toMatchObject({ code: 'not_found' });
  });

  test('a program that is not there ends with 127, one that cannot be executed with 126, as in a shell', async () => {
    const words = ['dev', '--', 'no-such-program', 'x'];
    const missing = await cli.run(['exec', ...words]);
    expect(missing).toMatchObject({ code: 127, stdout: '' });
    expect(missing.stderr).toContain('there is no program no-such-program');
    for (const options of [['--json'], ['--tty'], ['--detach']])
      expect((await cli.run(['exec', ...options, ...words])).code).toBe(127);
    const json = await cli.run(['exec', '--json', 'dev', '--', '/no/such/program', 'x']);
    expect(json.code).toBe(127);
    expect(errorOf(json.stderr)).toMatchObject({ code: 'not_found' });
    const refused = await cli.run(['exec', 'dev', '--', '/etc/passwd', 'x']);
    expect(refused).toMatchObject({ code: 126, stdout: '' });
    expect(refused.stderr).toContain('cannot execute /etc/passwd');
    // What is not found is no program here: these have the exit codes of their kind.
    for (const argv of [
      ['no-such-sandbox', '--', 'true'],
      ['--cwd', '/no/such/place', 'dev', '--', 'true'],
    ])
      expect((await cli.run(['exec', ...argv])).code).toBe(errorKinds.not_found.exitCode);
  });

  test('takes a command line as one word, and user, directory and variables', async () => {
    const { stdout } = await cli.run([
      'exec',
      ...['--cwd', '/tmp', '--env', 'GREETING=hello', '--user', 'user'],
      'dev',
      'echo "$GREETING $PWD $(id -un)"',
    ]);
    expect(stdout.trim()).toBe('hello /tmp user');
  });

  test('ends a command that takes too long with the exit code of a timeout', async () => {
    const { code, stderr } = await cli.run(['exec', '--timeout', '300ms', 'dev', '--', 'sleep', '1000000']);
    expect(stderr).toBe('killed after 0.3 s: --timeout\n');
    expect(code).toBe(errorKinds.timeout.exitCode);
  });

  test('gives all of it as JSON to programs', async () => {
    const { code, stdout, stderr } = await cli.run([
      'exec',
      '--json',
      'dev',
      '--',
      'sh',
      '-c',
      'echo out; exit 3',
    ]);
    expect({ code, stderr }).toEqual({ code: 3, stderr: '' });
    expect(JSON.parse(stdout)).toMatchObject({ exit_code: 3, stdout: 'out\n', timed_out: false });
  });

  test('runs jobs in the background whose log can be followed to the end', async () => {
    const job = await cli.ok(
      'exec',
      '--detach',
      'dev',
      '--',
      'sh',
      '-c',
      'echo one; read line; echo two; exit 4',
    );
    expect(job).toMatch(/^\d+$/);
    const followed = await cli.run(['logs', 'dev', job, '--follow']);
    expect(followed.stdout).toContain('one');
    expect((await cli.run(['jobs', 'dev', '--wait', job])).code).toBe(4);
  });

  test('can end a job', async () => {
    const job = await cli.ok('exec', '-d', 'dev', '--', 'sleep', '1000000');
    await cli.ok('jobs', 'dev', '--kill', job, '--signal', 'KILL');
    expect((await cli.run(['jobs', 'dev', '--wait', job])).code).toBe(128 + 9);
  });

  test('run makes a sandbox for one command and takes it away', async () => {
    const before = await cli.ok('ls', '--quiet');
    const { code, stdout } = await cli.run([
      'run',
      '--memory',
      '128m',
      '--',
      'sh',
      '-c',
      'echo here; exit 9',
    ]);
    expect({ code, stdout }).toEqual({ code: 9, stdout: 'here\n' });
    expect(await cli.ok('ls', '--quiet')).toBe(before);
  });
});

describe('shell', () => {
  test('is a terminal that passes the exit code on', async () => {
    const { code, stdout } = await cli.run(['shell', 'dev', '--', 'sh'], {
      input: 'test -t 0 && echo tty-$((40 + 2))\nexit 5\n',
    });
    expect(stdout).toContain('tty-42');
    expect(code).toBe(5);
  });

  test('ends when its input does, also where that was at its end from the start', async () => {
    const { code, stdout } = await cli.run(['shell', 'dev', '--', 'sh'], {
      input: 'echo said-$((40 + 2))\n',
    });
    expect(stdout).toContain('said-42');
    expect(code).toBe(0);
    expect((await cli.run(['shell', 'dev'])).code).toBe(0);
  });

  test('works in a terminal that knows no size', async () => {
    const script = `stty cols 0 rows 0; coppice shell dev -- sh -c 'echo joined-$((40 + 2)); exit 4'`;
    const { code, stdout } = await cli.spawn('script', ['-qec', script, '/dev/null'], {
      env: { PATH: `${join(cli.directory, 'bin')}:${process.env.PATH}` },
    });
    expect(stdout).toContain('joined-42');
    expect(code).toBe(4);
  });

  test('can be left with the detach key and joined again', async () => {
    const name = await cli.ok('create');
    const first = cli.begin(['shell', name, '--', 'sh']);
    first.type('KEPT=still; echo "[$KEPT-here]"\n');
    await first.untilSays('[still-here]');
    first.type('\x1d');
    expect(await first.ended).toBe(0);
    const [, number] = /--attach (\d+)/.exec(first.said) ?? [];
    expect(number).toBeDefined();
    const again = await cli.run(['shell', name, '--attach', number!], {
      input: 'echo "[$KEPT-there]"\nexit 6\n',
    });
    expect(again.stdout).toContain('[still-there]');
    expect(again.code).toBe(6);
    await cli.ok('rm', name);
  });
});

describe('cp and edit', () => {
  test('copy files and directories both ways, and by pipe', async () => {
    const tree = join(cli.directory, 'tree');
    await mkdir(join(tree, 'sub/empty'), { recursive: true });
    const content = Buffer.alloc(200_000, 7);
    await writeFile(join(tree, 'sub/data.bin'), content);
    await writeFile(join(tree, 'run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 });
    expect(await cli.ok('cp', 'tree', 'dev:/tmp/')).toMatch(/^copied 2 files,/);
    expect(await cli.ok('exec', 'dev', '/tmp/tree/run.sh')).toBe('ran');
    expect(await cli.ok('cp', 'dev:/tmp/tree', 'back')).toMatch(/^copied 2 files,/);
    expect(await readFile(join(cli.directory, 'back/sub/data.bin'))).toEqual(content);
    expect((await stat(join(cli.directory, 'back/run.sh'))).mode & 0o777).toBe(0o755);
    await cli.ok('cp', 'dev:/tmp/tree/run.sh', 'single.sh');
    expect(await readFile(join(cli.directory, 'single.sh'), 'utf8')).toBe('#!/bin/sh\necho ran\n');
    await cli.run(['cp', '-', 'dev:/tmp/piped'], { input: content });
    expect((await cli.run(['cp', 'dev:/tmp/piped', '-'])).bytes).toEqual(content);
  });

  test('a path that is not there is named, and nothing is left behind', async () => {
    const { code, stderr } = await cli.run(['cp', 'dev:/nowhere', 'target']);
    expect(code).toBe(errorKinds.not_found.exitCode);
    expect(stderr).toContain('dev:/nowhere');
    await expect(stat(join(cli.directory, 'target'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test('edit replaces an exact text, and refuses one that is absent or ambiguous', async () => {
    await cli.run(['cp', '-', 'dev:/tmp/edited'], { input: 'a = 1\nb = 1\n' });
    await cli.ok('edit', 'dev:/tmp/edited', '--old', 'a = 1', '--new', 'a = 2');
    expect((await cli.run(['edit', 'dev:/tmp/edited', '--old', 'zzz', '--new', 'y'])).code).toBe(
      errorKinds.no_match.exitCode,
    );
    expect((await cli.run(['edit', 'dev:/tmp/edited', '--old', ' = ', '--new', ':'])).code).not.toBe(0);
    expect(await cli.ok('exec', 'dev', 'cat', '/tmp/edited')).toBe('a = 2\nb = 1');
    const byHand = await cli.run(['edit', 'dev:/tmp/edited'], {
      env: { EDITOR: 'sed -i s/b/c/', VISUAL: '' },
    });
    expect(byHand.code).toBe(0);
    expect(await cli.ok('exec', 'dev', 'cat', '/tmp/edited')).toBe('a = 2\nc = 1');
  });
});

describe('branches', () => {
  test('snapshot, restore, fork, diff, merge and tree tell one story', async () => {
    await cli.ok('create', 'trunk', '--label', 'story=yes');
    const write = (name: string, text: string) => cli.run(['cp', '-', `${name}:/root/file`], { input: text });
    await write('trunk', 'one\n');
    await cli.ok('snapshot', 'trunk', 'first', '--note', 'the beginning', '--tag', 'good');
    await write('trunk', 'broken\n');
    const [, undo] = /undo: coppice (restore trunk \S+)$/.exec(await cli.ok('restore', 'trunk', 'first'))!;
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('one');
    await cli.ok(...undo!.split(' '));
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('broken');
    expect(await cli.ok('snapshots', 'trunk')).toMatch(/before-restore-\w+ .* ago, automatic/);
    const kept = undo!.split(' ')[2]!;
    expect(await cli.ok('keep', kept, '--name', 'mine')).toBe(`mine  ${kept}`);
    expect(await cli.json('keep', 'trunk:mine')).toMatchObject({ name: 'mine', automatic: false });
    expect(await cli.ok('restore', 'trunk', 'first', '--discard')).not.toContain('undo');
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('one');
    const [taken] = await cli.json<{ name: string; note: string; tags: string[] }[]>('snapshots', 'trunk');
    expect(taken).toMatchObject({ name: 'first', note: 'the beginning', tags: ['good'] });

    const grown = await cli.ok('fork', 'trunk:first', '--count', '2', '--prefix', 'twig');
    expect(grown.split('\n').sort()).toEqual(['twig-1', 'twig-2']);
    await write('twig-1', 'two\n');
    expect(await cli.ok('diff', 'trunk', 'twig-1')).toContain('M /root/file (4 B -> 4 B)');
    expect(await cli.ok('diff', 'trunk', 'twig-1', '/root/file')).toContain('-one\n+two');
    expect(await cli.ok('diff', 'trunk', 'twig-2', '--stat')).toBe('no difference');
    expect(await cli.ok('diff', 'trunk', 'twig-1', '/root')).toBe('M /root/file (4 B -> 4 B)\n1 modified');
    expect(await cli.ok('diff', 'trunk', 'twig-1', '/etc')).toBe('no difference');
    expect(await cli.ok('diff', 'trunk', 'twig-1', '/root/file', '--stat')).toBe('1 modified');
    expect((await cli.run(['diff', 'trunk', 'twig-1', '/nowhere'])).stderr).toContain(
      'exists on neither side',
    );

    expect(await cli.ok('merge', 'twig-1', 'trunk', '--dry-run')).toContain('would go into trunk');
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('one');
    await cli.ok('merge', 'twig-1', 'trunk');
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('two');

    await write('twig-2', 'three\n');
    const conflict = await cli.run(['merge', 'twig-2', 'trunk']);
    expect(conflict.code).toBe(errorKinds.conflict.exitCode);
    expect(conflict.stderr).toContain('C /root/file');
    expect(conflict.stderr).toContain('coppice merge twig-2 trunk --prefer');
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('two');
    expect(await cli.ok('merge', 'twig-2', 'trunk', '--dry-run')).toContain('; 1 conflict would stop it');
    expect(await cli.ok('merge', 'twig-2', 'trunk', '--prefer', 'theirs')).toContain(
      'merged 0 changes of twig-2 into trunk; 1 conflict settled: taken from twig-2\nundo: ',
    );
    expect(await cli.ok('exec', 'trunk', 'cat', '/root/file')).toBe('three');

    const tree = await cli.ok('tree');
    expect(tree).toMatch(/● trunk {2}running/);
    expect(tree).toMatch(/○ first {2}snapshot/);
    expect(tree).toMatch(/● twig-1 {2}running/);
    expect(await cli.ok('ls', '--quiet', '--label', 'story=yes')).toContain('trunk');
    await cli.ok('rm', 'twig-1', 'twig-2', 'trunk');
  });

  test('stop keeps the disk, start goes on with it', async () => {
    const name = await cli.ok('create');
    await cli.ok('exec', name, 'echo kept > /root/kept');
    await cli.ok('stop', name);
    const stopped = await cli.run(['exec', name, 'true']);
    expect(stopped.code).toBe(errorKinds.wrong_state.exitCode);
    await cli.ok('start', name);
    expect(await cli.ok('exec', name, 'cat', '/root/kept')).toBe('kept');
    await cli.ok('rm', name);
  });
});

test('workspace commands need no daemon and pass their own options and exit codes on', async () => {
  const home = join(cli.directory, 'no-daemon');
  const made = await cli.run(['workspace', 'init', 'notes', '--json'], { env: { COPPICE_HOME: home } });
  expect(made).toMatchObject({ code: 0 });
  JSON.parse(made.stdout);
  const unknown = await cli.run(['workspace', 'nonsense'], { env: { COPPICE_HOME: home } });
  expect(unknown.code).toBe(errorKinds.invalid_argument.exitCode);
});

describe('network and ports', () => {
  test('the policy is shown and changed while it runs', async () => {
    expect(await cli.ok('net', 'dev')).toBe('dev: none');
    expect(await cli.json('net', 'dev', '--internet', '--allow-port', '443')).toMatchObject({
      allow_internet: true,
      allowed_ports: [443],
    });
    expect(await cli.ok('net', 'dev', '--none')).toBe('dev: none');
  });

  test('a port leads into the sandbox until it is removed', async () => {
    const forward = await cli.json<{ host_port: number }>('port', 'dev', '8080');
    expect(forward.host_port).toBeGreaterThanOrEqual(1024);
    expect(await cli.json('port', 'dev')).toHaveLength(1);
    await cli.ok('port', 'dev', '8080', '--remove');
    expect(await cli.ok('port', 'dev')).toBe('No ports are forwarded.');
  });
});

describe('what is said', () => {
  test('errors name the thing and the next step, in words and in JSON', async () => {
    const words = await cli.run(['info', 'nobody']);
    expect(words).toMatchObject({ code: errorKinds.not_found.exitCode, stdout: '' });
    expect(words.stderr).toMatch(/^error: .*nobody.*\nhint: /);
    const json = await cli.run(['info', 'nobody', '--json']);
    expect(json).toMatchObject({ code: errorKinds.not_found.exitCode, stdout: '' });
    expect(errorOf(json.stderr)).toMatchObject({ code: 'not_found', hint: expect.any(String) });
    const taken = await cli.run(['create', 'dev']);
    expect(taken.code).toBe(errorKinds.name_taken.exitCode);
  });

  test('a misspelt command or option is refused with the likely one', async () => {
    const command = await cli.run(['craete']);
    expect(command).toMatchObject({ code: errorKinds.invalid_argument.exitCode });
    expect(command.stderr).toContain('create');
    const option = await cli.run(['create', '--memry', '1g']);
    expect(option).toMatchObject({ code: errorKinds.invalid_argument.exitCode });
    expect(option.stderr).toContain('--memory');
  });

  test('help for a command that there is not, a home without a name and a client of another name are refused', async () => {
    for (const argv of [
      ['help', 'creat'],
      ['creat', '--help'],
      ['help', 'constructor'],
      ['--home', '', 'ls'],
      ['ls', '--home='],
      ['--home'],
      ['mcp', 'install', 'constructor'],
      ['mcp', 'install', '__proto__', '--write'],
    ]) {
      const { code, stdout, stderr } = await cli.run(argv);
      expect({ argv, code, stdout }).toEqual({ argv, code: 2, stdout: '' });
      expect(stderr).toMatch(/^error: .*\nhint: /);
    }
  });

  test('a copy out of a sandbox that there is not says that of the sandbox', async () => {
    const { code, stderr } = await cli.run(['cp', 'nobody:/etc/hostname', '.']);
    expect(code).toBe(errorKinds.not_found.exitCode);
    expect(stderr).toContain('there is no sandbox nobody');
  });

  test('the exit code is right when nobody reads what is said', async () => {
    const script = 'set -o pipefail; bin/coppice info nobody 2>&1 >/dev/null | true';
    const { code } = await cli.spawn('bash', ['-c', script]);
    expect(code).toBe(errorKinds.not_found.exitCode);
  });

  test('what is not found is said with the command that lists what there is', async () => {
    const lists = [
      [['exec', 'nobody', 'true'], 'coppice ls'],
      [['diff', 'dev', 'nobody'], 'coppice ls'],
      [['restore', 'dev', 'never'], 'coppice snapshots'],
      [['fork', 'dev', '--snapshot', 'never'], 'coppice snapshots'],
      [['create', '--image', 'nothing'], 'coppice images'],
      [['logs', 'dev', '4711'], 'coppice jobs'],
      [['port', 'dev', '4711', '--remove'], 'coppice port'],
      [['token', 'revoke', 'none'], 'coppice token ls'],
      [['token', 'create', 'lost', '--sandbox', 'nobody'], 'coppice ls'],
    ] as const;
    for (const [argv, list] of lists) {
      const { code, stderr } = await cli.run([...argv]);
      expect({ argv, code }).toEqual({ argv, code: errorKinds.not_found.exitCode });
      expect(stderr).toMatch(new RegExp(`^hint: .*\`${list}`, 'm'));
    }
  });

  test('help is a command too', async () => {
    expect(await cli.ok('help')).toBe(await cli.ok('--help'));
    expect(await cli.ok('help', 'images', 'build')).toBe(await cli.ok('images', 'build', '--help'));
  });

  test('a value out of range is refused with the bound and the help of the command', async () => {
    const { code, stderr } = await cli.run(['create', '--memory', '1']);
    expect(code).toBe(errorKinds.invalid_argument.exitCode);
    expect(stderr).toBe('error: memory_mb: must be at least 16\nhint: See `coppice create --help`.\n');
  });

  test.each([
    'jobs dev --signal 9',
    'jobs dev --kill 1 --wait 1',
    'port dev --remove',
    'port dev 8080 --remove --host-port 9000',
    'exec --detach --tty dev true',
  ])('options that would say nothing are refused: %s', async (line) => {
    const { code, stderr } = await cli.run(line.split(' '));
    expect(code).toBe(errorKinds.invalid_argument.exitCode);
    expect(stderr).toMatch(/^error: .*\nhint: /);
  });

  test('a list that is empty by its filter does not say that there is nothing', async () => {
    expect(await cli.ok('ls', '--label', 'nobody=has')).toBe('No such sandboxes.');
  });

  test('an export into a directory that is not there names what was asked for', async () => {
    await cli.ok('snapshot', 'dev', 'to-export');
    const { code, stderr } = await cli.run(['export', 'dev:to-export', '-o', 'absent/file']);
    expect(code).toBe(errorKinds.not_found.exitCode);
    expect(stderr).toMatch(/^error: the directory of absent\/file does not exist\n/);
    await cli.ok('rm', 'dev:to-export');
  });

  test('nothing is coloured when it is piped', async () => {
    for (const argv of [['ls'], ['tree'], ['doctor'], ['info', 'dev']]) {
      expect((await cli.run(argv)).stdout).not.toContain('\x1b');
    }
  });

  test('tokens reach what their scope says until they are revoked', async () => {
    const secret = await cli.ok('token', 'create', 'narrow', '--sandbox', 'dev');
    const env = { COPPICE_TOKEN: secret };
    expect((await cli.run(['info', 'dev'], { env })).code).toBe(0);
    expect((await cli.run(['ls'], { env })).code).toBe(errorKinds.forbidden.exitCode);
    await cli.ok('token', 'revoke', 'narrow');
    expect((await cli.run(['info', 'dev'], { env })).code).toBe(errorKinds.unauthenticated.exitCode);
  });

  test('events and images are listed', async () => {
    const events = await cli.json<{ seq: number }[]>('events', '--sandbox', 'dev');
    expect(events.length).toBeGreaterThan(0);
    const images = await cli.json<{ name: string }[]>('images', 'ls');
    expect(images.map(({ name }) => name)).toContain('tiny');
    const inspected = await cli.ok('images', 'inspect', 'tiny');
    expect(inspected).toMatch(/^used by\s.*\bdev\b/m);
    expect(inspected).not.toMatch(/\b(sb|sn)_/);
    expect((await cli.run(['images', 'rm', 'tiny'])).code).toBe(errorKinds.in_use.exitCode);
  });

  test('completion scripts are ones that the shell understands and complete names of sandboxes', async () => {
    const script = await cli.ok('completion', 'bash');
    const { stdout } = await cli.spawn(
      'bash',
      ['-c', `${script}\nCOMP_WORDS=(coppice info d) COMP_CWORD=2; _coppice; echo "\${COMPREPLY[@]}"`],
      {
        env: { PATH: `${join(cli.directory, 'bin')}:${process.env.PATH}` },
      },
    );
    expect(stdout.trim()).toBe('dev');
  });
});
