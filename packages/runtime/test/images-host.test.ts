import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { sharedHostRootfs } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildHostRootfs } from '../src/images/host-rootfs.ts';
import type { ImageProgress } from '../src/images/image.ts';
import { readManifest } from '../src/images/manifest.ts';

const run = promisify(execFile);
const marker = 'planted-secret-7f3a';

let base: string;
beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'coppice-host-image-'));
});
afterAll(async () => {
  await rm(base, { recursive: true, force: true });
});

describe('the host image of a machine full of secrets', () => {
  const secrets: readonly [path: string, mode: number][] = [
    ['etc/shadow', 0o640],
    ['etc/gshadow', 0o640],
    ['etc/passwd', 0o644],
    ['etc/group', 0o644],
    ['etc/hosts', 0o644],
    ['etc/hostname', 0o644],
    ['etc/resolv.conf', 0o644],
    ['etc/machine-id', 0o444],
    ['etc/environment', 0o644],
    ['etc/profile', 0o644],
    ['etc/profile.d/token.sh', 0o644],
    ['etc/npmrc', 0o644],
    ['etc/pip.conf', 0o644],
    ['etc/gitconfig', 0o644],
    ['etc/fstab', 0o644],
    ['etc/apt/auth.conf', 0o644],
    ['etc/apt/sources.list', 0o644],
    ['etc/ssh/ssh_host_ed25519_key', 0o600],
    ['etc/ssl/private/server.key', 0o640],
    ['etc/ssl/certs/own.key', 0o600],
    ['etc/sudoers', 0o440],
    ['etc/unknown-service.conf', 0o644],
    ['root/.ssh/id_ed25519', 0o600],
    ['root/.bash_history', 0o644],
    ['home/someone/.aws/credentials', 0o644],
    ['opt/service/config', 0o644],
    ['srv/data', 0o644],
    ['var/lib/service/db', 0o644],
    ['var/backups/shadow.bak', 0o644],
    ['run/secrets/token', 0o644],
    ['tmp/token', 0o644],
    ['usr/etc/npmrc', 0o644],
    ['usr/local/etc/service.conf', 0o644],
    ['usr/local/bin/deploy', 0o755],
    ['usr/lib/node_modules/npm/npmrc', 0o644],
    ['usr/lib/service/private.key', 0o600],
    ['usr/share/service/.netrc', 0o644],
    ['usr/share/closed/inner', 0o644],
    ['usr/bin/only-for-staff', 0o750],
  ];
  let rootfs: string;
  const progress: ImageProgress[] = [];

  beforeAll(async () => {
    const machineRoot = join(base, 'machine');
    const put = async (path: string, text: string, mode: number): Promise<void> => {
      await mkdir(dirname(join(machineRoot, path)), { recursive: true });
      await writeFile(join(machineRoot, path), text);
      await chmod(join(machineRoot, path), mode);
    };
    for (const [path, mode] of secrets) await put(path, marker, mode);
    await chmod(join(machineRoot, 'usr/share/closed'), 0o750);
    await put('usr/lib/os-release', 'NAME=Test\n', 0o644);
    await put('usr/bin/tool', 'a tool', 0o755);
    await put('usr/share/doc/tool/copyright', 'long', 0o644);
    await put('etc/ld.so.conf', 'include x\n', 0o644);
    await put('etc/ssl/certs/public.pem', 'public', 0o644);
    await symlink('usr/bin', join(machineRoot, 'bin'));
    await run('mkfifo', [join(machineRoot, 'usr/lib/service/pipe')]);
    rootfs = join(base, 'rootfs');
    await mkdir(rootfs);
    await buildHostRootfs(rootfs, { machineRoot, onProgress: (at) => progress.push(at) });
  });

  it('holds none of them', async () => {
    const { stdout } = await run('grep', ['-rl', marker, rootfs]).catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
    const { stdout: names } = await run('find', [rootfs, '-printf', '%P\n']);
    for (const name of [
      'only-for-staff',
      'deploy',
      'closed',
      'private.key',
      'own.key',
      'pipe',
      'id_ed25519',
    ]) {
      expect(names).not.toContain(name);
    }
  });

  it('holds the programs, the public certificates and what the loader needs', async () => {
    expect(await readFile(join(rootfs, 'bin/tool'), 'utf8')).toBe('a tool');
    expect(await readFile(join(rootfs, 'etc/ssl/certs/public.pem'), 'utf8')).toBe('public');
    expect(await readFile(join(rootfs, 'etc/ld.so.conf'), 'utf8')).toBe('include x\n');
    await expect(stat(join(rootfs, 'usr/share/doc'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('copies files of /etc, so that an edit on the machine does not reach it', async () => {
    expect((await stat(join(rootfs, 'etc/ld.so.conf'))).nlink).toBe(1);
  });

  it('tells how far it is, up to the end', () => {
    expect(progress.at(-1)).toMatchObject({ phase: 'done', done: progress.at(-1)!.total });
    expect(progress.map(({ done }) => done)).toEqual(progress.map(({ done }) => done).sort((a, b) => a - b));
  });

  it('is refused, with the reason, where a machine has no such system', async () => {
    const empty = join(base, 'empty');
    const target = join(base, 'target');
    await mkdir(join(empty, 'usr'), { recursive: true });
    await mkdir(join(empty, 'etc'));
    await mkdir(target);
    await expect(buildHostRootfs(target, { machineRoot: empty })).rejects.toMatchObject({
      code: 'unsupported',
    });
  });

  it('is the same by its digest whenever and wherever it is made, so that what stands on it may move', async () => {
    const again = await mkdtemp(join(base, 'again-'));
    await buildHostRootfs(again, { machineRoot: join(base, 'machine') });
    const digests = [rootfs, again].map(
      async (path) => (await readManifest(`${path}/`, { content: false })).digest,
    );
    expect(await digests[0]).toBe(await digests[1]);
  });
});

describe('the host image of this machine', () => {
  let rootfs: string;
  beforeAll(async () => {
    rootfs = await sharedHostRootfs();
  });

  it('runs programs as root and as user', async () => {
    const inside = async (...argv: string[]): Promise<string> =>
      (await run('chroot', [rootfs, ...argv])).stdout;
    expect(await inside('/bin/sh', '-c', 'id -un; id -un user; id -u user')).toBe('root\nuser\n1000\n');
    expect(
      await run('chroot', ['--userspec=user', rootfs, '/bin/bash', '-c', 'cd ~user && pwd && id -un']),
    ).toMatchObject({
      stdout: '/home/user\nuser\n',
    });
  });

  it('has no password, no key, no home and no setting of the machine', async () => {
    const shadow = await readFile(join(rootfs, 'etc/shadow'), 'utf8');
    expect(
      shadow
        .trim()
        .split('\n')
        .every((line) => line.split(':')[1] === '*'),
    ).toBe(true);
    expect(await readFile(join(rootfs, 'etc/machine-id'), 'utf8')).toBe('');
    expect(await readdir(join(rootfs, 'home'))).toEqual(['user']);
    for (const empty of [
      'opt',
      'srv',
      'mnt',
      'media',
      'var/lib',
      'var/log',
      'usr/local/bin',
      'usr/local/etc',
    ]) {
      expect(await readdir(join(rootfs, empty)), empty).toEqual([]);
    }
    expect(await readdir(join(rootfs, 'root'))).toEqual(['.bashrc']);
    const etc = await readdir(join(rootfs, 'etc'));
    for (const absent of [
      'ssh',
      'sudoers',
      'sudoers.d',
      'apt',
      'npmrc',
      'pip.conf',
      'cron.d',
      'systemd',
      'gitconfig',
    ]) {
      expect(etc).not.toContain(absent);
    }
    expect(await readdir(join(rootfs, 'etc/ssl'))).not.toContain('private');
  });

  it('has nothing that other accounts of the machine may not read', async () => {
    const { stdout } = await run('find', [
      ...[join(rootfs, 'usr'), '-xdev', '(', '-type', 'f', '!', '-perm', '-0004', ')'],
      ...['-o', '(', '-type', 'd', '!', '-perm', '-0001', ')'],
    ]);
    expect(stdout).toBe('');
  });

  it('gives the user a workspace and a temporary directory', async () => {
    expect(await stat(join(rootfs, 'workspace'))).toMatchObject({ uid: 0, gid: 0 });
    expect((await stat(join(rootfs, 'tmp'))).mode & 0o7777).toBe(0o1777);
  });
});
