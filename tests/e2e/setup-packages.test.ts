import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from './cli-home.ts';

const checkout = join(import.meta.dirname, '../..');
const execute = promisify(execFile);
/** The oldest Node that the client promises to run on, from the registry: no machine is asked to have it. */
const oldNode = `node-linux-${process.arch}`;
const oldNodeVersion = '20.19.5';

const program = `
import { Coppice, CoppiceError } from '@coppice/sdk';
const coppice = new Coppice({ home: process.argv[2] });
const sandbox = await coppice.sandboxes.create({ memory_mb: 64 });
await sandbox.files.write('/root/said', 'from far away');
const { stdout } = await sandbox.exec(['cat', '/root/said']);
const streamed = [];
const command = await sandbox.execStream(['sh', '-c', 'echo streamed']);
for await (const { data } of command) streamed.push(Buffer.from(data));
const missing = await sandbox.files.read('/nowhere').catch((error) => error);
await sandbox.destroy();
coppice.close();
console.log(JSON.stringify({
  version: process.version.split('.')[0],
  stdout,
  streamed: Buffer.concat(streamed).toString(),
  code: missing instanceof CoppiceError && missing.code,
}));
`;

const typed = `
import {
  Coppice, CoppiceError, type CreateOptions, type Diff, type ErrorCode, type Event, type ExecResult, type Forks, type Image,
  type Job, type JobActions, type ListedSandbox, type Merged, type Sandbox, type SandboxInfo, type SandboxState,
  type Snapshot, type SnapshotActions,
} from '@coppice/sdk';
const coppice = new Coppice();
const sandbox: Sandbox = await coppice.sandboxes.create({ memory_mb: 1024 });
const { exit_code, stdout } = await sandbox.exec(['true']);
export const ended: number | null = exit_code;
export const said: string = stdout;
export const result: ExecResult = await sandbox.exec('true', { timeout_ms: 1000 });
export const options: CreateOptions = { memory_mb: 64 };
export const listed: ListedSandbox[] = await coppice.sandboxes.list();
export const state: SandboxState = listed[0]!.state;
export const info: SandboxInfo = listed[0]!;
for (const one of listed) if (one.state === 'running') await one.stop();
export const job: Job & JobActions = await sandbox.jobs.start('make');
for await (const { stream, data } of job.follow()) console.log(stream, data.length);
export const code: number | null = (await job.wait()).exit_code;
await sandbox.waitForPort(80, { timeout_ms: 1000 });
export const taken: Snapshot & SnapshotActions = await sandbox.snapshot();
export const forks: Forks = await taken.fork({ count: 2 });
export const merged: Merged = await sandbox.merge(forks.sandboxes[0]!, { prefer: 'theirs' });
export const diff: Diff = await coppice.diff(forks.snapshot_id, sandbox.id);
export const images: Image[] = await coppice.images.list();
export const kind = (error: unknown): ErrorCode | undefined => (error instanceof CoppiceError ? error.code : undefined);
export const happened = (event: Event): string => event.type;
// @ts-expect-error An option that is not there is refused.
await coppice.sandboxes.create({ memroy_mb: 1 });
`;

describe('the packages, installed into an empty directory', () => {
  let directory: string;
  const npm = (...args: string[]) => execute('npm', args, { cwd: directory });

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pack-'));
    await execute('node', [join(checkout, 'scripts/pack.ts'), directory], { cwd: checkout });
    const tarballs = (await readdir(directory)).filter((name) => name.endsWith('.tgz'));
    await writeFile(join(directory, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
    await npm(
      'install',
      '--no-audit',
      '--no-fund',
      '--prefer-offline',
      ...tarballs.map((name) => `./${name}`),
      `${oldNode}@${oldNodeVersion}`,
    );
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  test('runs on Node 20 against a daemon', async () => {
    await using daemon = await RunningDaemon.start();
    await writeFile(join(directory, 'program.mjs'), program);
    const node = join(directory, 'node_modules', oldNode, 'bin/node');
    const { stdout } = await execute(node, ['program.mjs', daemon.home], { cwd: directory });
    expect(JSON.parse(stdout)).toEqual({
      version: 'v20',
      stdout: 'from far away',
      streamed: 'streamed\n',
      code: 'not_found',
    });
  });

  test.each([
    ['of Node', { module: 'nodenext', target: 'es2022' }],
    [
      'of a bundler',
      { module: 'esnext', moduleResolution: 'bundler', target: 'esnext', lib: ['esnext', 'dom'] },
    ],
  ])('has types that plain settings %s check, and exports all of them', async (_of, plain) => {
    await writeFile(join(directory, 'typed.ts'), typed);
    const settings = {
      compilerOptions: {
        ...plain,
        types: ['node'],
        typeRoots: [join(checkout, 'node_modules/@types')],
        strict: true,
        noEmit: true,
      },
      files: ['typed.ts'],
    };
    await writeFile(join(directory, 'tsconfig.json'), JSON.stringify(settings));
    const checked = await execute('tsc', ['-p', '.'], { cwd: directory }).catch(
      (error: { stdout: string }) => error,
    );
    expect(checked.stdout).toBe('');
  });

  test('the program makes sandboxes, snapshots and forks without the checkout', async () => {
    const home = await CliHome.start([join(directory, 'node_modules/.bin/coppice')]);
    try {
      await home.ok('create', 'dev');
      await home.ok('exec', 'dev', '--', 'sh', '-c', 'echo kept > /root/file');
      await home.ok('snapshot', 'dev', 'baseline');
      await home.ok('fork', 'dev', 'left');
      expect(await home.ok('exec', 'left', '--', 'cat', '/root/file')).toBe('kept');
      expect(await home.ok('diff', 'dev', 'left')).not.toContain('/root/file');
      const { pid } = await home.json<{ pid: number }>('status');
      expect(await readFile(`/proc/${pid}/cmdline`, 'utf8')).toContain(directory);
    } finally {
      await home.remove();
    }
  });

  test('jvs versions a directory without the checkout', async () => {
    const jvs = (...args: string[]) =>
      execute(join(directory, 'node_modules/.bin/jvs'), args, { cwd: directory });
    await rm(join(directory, 'work'), { recursive: true, force: true });
    await jvs('init', 'work');
    await writeFile(join(directory, 'work/main/file'), 'kept');
    await jvs('-C', 'work/main', 'snapshot', 'first');
    const { stdout } = await jvs('-C', 'work/main', 'history', '--json');
    expect(stdout).toContain('first');
  });

  test('the program says which Node it needs on an older one', async () => {
    const old = join(directory, 'node_modules', oldNode, 'bin');
    const failed = await execute(join(directory, 'node_modules/.bin/coppice'), ['ls'], {
      cwd: directory,
      env: { ...process.env, PATH: `${old}:/usr/bin:/bin` },
    }).catch((error: { code: number; stderr: string }) => error);
    expect(failed).toMatchObject({ code: 69 });
    expect(failed.stderr).toContain(`needs Node 24 or later, and found v${oldNodeVersion}`);
  });
});
