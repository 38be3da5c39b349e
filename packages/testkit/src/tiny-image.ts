import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, copyFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Part of the name of the directory: another list makes another image. */
const version = 3;

const programs = [
  ...['bash', 'cat', 'chmod', 'chown', 'cp', 'cut', 'dd', 'df', 'du', 'echo', 'env', 'false', 'find', 'grep'],
  ...[
    'head',
    'hostname',
    'id',
    'kill',
    'ln',
    'ls',
    'mkdir',
    'mkfifo',
    'mknod',
    'mount',
    'mv',
    'nproc',
    'nsenter',
  ],
  ...['getcap', 'getfattr', 'setcap', 'setfattr'],
  ...[
    'printf',
    'ps',
    'pwd',
    'readlink',
    'rm',
    'rmdir',
    'sed',
    'seq',
    'setsid',
    'sleep',
    'sort',
    'stat',
    'sync',
  ],
  ...['tail', 'tar', 'tee', 'test', 'touch', 'tr', 'true', 'tty', 'umount', 'uname', 'unshare', 'wc', 'yes'],
];

const directories = [
  'dev',
  'etc',
  'home',
  'home/user',
  'proc',
  'root',
  'run',
  'sys',
  'tmp',
  'usr/bin',
  'var/tmp',
  'workspace',
];

/**
 * A root filesystem of a few megabytes, with a shell and its everyday programs copied from this machine. Built once and then shared
 * by every test, so nobody may write to it; two that build at once end with one. `more` are programs that it has besides.
 */
export async function tinyImage(...more: readonly string[]): Promise<string> {
  const cache = fileURLToPath(new URL('../../../.tools/test-images/', import.meta.url));
  const image = join(cache, ['tiny', version, ...more].join('-'));
  if (existsSync(image)) return image;
  await mkdir(cache, { recursive: true });
  const draft = await mkdtemp(join(cache, 'draft-'));
  try {
    await build(draft, more);
    await chmod(draft, 0o755);
    await rename(draft, image);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    // Another process was first; its image is as good.
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
  }
  return image;
}

async function build(root: string, more: readonly string[]): Promise<void> {
  for (const directory of directories) await mkdir(join(root, directory), { recursive: true, mode: 0o755 });
  for (const shared of ['tmp', 'var/tmp']) await chmod(join(root, shared), 0o1777);
  await chmod(join(root, 'root'), 0o700);
  await chown(join(root, 'home/user'), 1000, 1000);
  for (const [link, target] of [
    ['bin', 'usr/bin'],
    ['sbin', 'usr/bin'],
    ['usr/bin/sh', 'bash'],
  ] as const) {
    await symlink(target, join(root, link));
  }
  await writeFile(
    join(root, 'etc/passwd'),
    'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n',
  );
  await writeFile(join(root, 'etc/group'), 'root:x:0:\nuser:x:1000:\n');
  const found = await Promise.all([...programs, ...more].map(locate));
  for (const program of found) await copyInto(root, program, join('usr/bin', basename(program)));
  await addLibraries(root, found);
}

/** The libraries that these programs of this machine need. */
export async function addLibraries(root: string, found: readonly string[]): Promise<void> {
  for (const library of await librariesOf(found)) await copyInto(root, library, library);
  // As in every image: without it each start of a program looks for its libraries in a dozen places.
  await run('/sbin/ldconfig', ['-r', root]);
}

async function locate(name: string): Promise<string> {
  for (const directory of ['/usr/bin', '/bin', '/usr/sbin', '/sbin', '/usr/lib/git-core']) {
    if (existsSync(join(directory, name))) return join(directory, name);
  }
  throw new Error(`this machine has no ${name} to put in the test image`);
}

async function librariesOf(found: readonly string[]): Promise<Set<string>> {
  const { stdout } = await run('ldd', found as string[], { maxBuffer: 1 << 24 });
  return new Set([...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1]!));
}

async function copyInto(root: string, from: string, to: string): Promise<void> {
  const target = join(root, to);
  await mkdir(dirname(target), { recursive: true });
  await rm(target, { force: true });
  await copyFile(from, target);
  await chmod(target, 0o755);
}
