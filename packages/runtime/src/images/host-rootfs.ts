import {
  chmod,
  chown,
  lstat,
  lutimes,
  mkdir,
  readdir,
  readlink,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../programs/run-program.ts';
import {
  packagedEtcNames,
  packagedSslNames,
  synthesisedDirectories,
  synthesisedFiles,
  synthesisedLinks,
} from './host-etc.ts';
import type { BuildOptions } from './image.ts';

export interface HostRootfsOptions extends BuildOptions {
  /** The machine to take from; tests give one of their own making. */
  readonly machineRoot?: string;
}

/** Grows when the layout changes, so that whoever keeps a built one knows that it is of another kind. */
export const hostRootfsVersion = 4;

/**
 * `local` and `etc` are where a machine's owner puts scripts and configuration of their own; the others are large
 * and serve nobody in a sandbox.
 */
const leftOutOfUsr = new Set(['local', 'etc', 'src', 'games']);
const leftOutOfUsrShare = new Set(['doc', 'man', 'info', 'help', 'gnome', 'lintian', 'bug']);
const leftOutOfUsrLib = new Set(['debug', 'modules', 'firmware']);
const credentialNames = [
  'npmrc',
  '.npmrc',
  '.netrc',
  '.pypirc',
  'pip.conf',
  '.git-credentials',
  '.htpasswd',
  'id_rsa',
  'id_ecdsa',
  'id_ed25519',
  '.env',
];
const mergedNames = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/**
 * Makes the root filesystem of the `host` image in an empty directory: /usr shared with the machine as cheaply as
 * the filesystem allows, everything else synthesised. docs/adr/0003-host-image.md says why, and why it is safe.
 */
export async function buildHostRootfs(rootfs: string, options: HostRootfsOptions = {}): Promise<void> {
  const machineRoot = options.machineRoot ?? '/';
  await makeSkeleton(rootfs);
  const steps = await planCopies(machineRoot, rootfs);
  const sharing = await chooseSharing(machineRoot, rootfs);
  const total = steps.length + 1;
  let done = 0;
  for (const step of steps) {
    options.onProgress?.({ phase: 'sharing /usr', done, total, unit: 'steps' });
    const flags = step.share ? sharing : '--reflink=auto';
    await runProgram(
      ['cp', '--archive', '--one-file-system', '--no-target-directory', flags, '--', step.from, step.to],
      { signal: options.signal },
    );
    done += 1;
  }
  options.onProgress?.({ phase: 'leaving out what is private', done, total, unit: 'steps' });
  await dropPrivate(rootfs, options.signal);
  await synthesise(rootfs);
  await settleTimes(rootfs, options.signal);
  options.onProgress?.({ phase: 'done', done: total, total, unit: 'steps' });
}

async function makeSkeleton(rootfs: string): Promise<void> {
  await chmod(rootfs, 0o755);
  for (const { path, mode, owner } of synthesisedDirectories) {
    await mkdir(join(rootfs, path), { recursive: true });
    await chmod(join(rootfs, path), mode);
    await chown(join(rootfs, path), owner, owner);
  }
}

interface CopyStep {
  readonly from: string;
  readonly to: string;
  /** Share the files with the machine; files of /etc are small and edited in place, so they are copied. */
  readonly share: boolean;
}

async function planCopies(machineRoot: string, rootfs: string): Promise<CopyStep[]> {
  const steps: CopyStep[] = [];
  const add = (path: string, share: boolean): void => {
    steps.push({ from: join(machineRoot, path), to: join(rootfs, path), share });
  };
  for (const name of await namesIn(join(machineRoot, 'usr'))) {
    if (leftOutOfUsr.has(name)) continue;
    const leftOut = name === 'share' ? leftOutOfUsrShare : name === 'lib' ? leftOutOfUsrLib : undefined;
    if (leftOut === undefined || (await lstat(join(machineRoot, 'usr', name))).isSymbolicLink()) {
      add(`usr/${name}`, true);
      continue;
    }
    await mkdir(join(rootfs, 'usr', name), { recursive: true });
    for (const child of await namesIn(join(machineRoot, 'usr', name))) {
      if (!leftOut.has(child)) add(`usr/${name}/${child}`, true);
    }
  }
  for (const name of mergedNames) {
    const stat = await lstat(join(machineRoot, name)).catch(absent);
    if (stat === undefined) continue;
    if (stat.isSymbolicLink()) await makeLink(await readlink(join(machineRoot, name)), join(rootfs, name));
    else add(name, true);
  }
  for (const name of await namesIn(join(machineRoot, 'etc'))) {
    if (packagedEtcNames.some((known) => (typeof known === 'string' ? known === name : known.test(name)))) {
      add(`etc/${name}`, false);
    }
  }
  const ssl = await namesIn(join(machineRoot, 'etc/ssl')).catch(absent);
  for (const name of packagedSslNames) if (ssl?.includes(name)) add(`etc/ssl/${name}`, false);
  return steps;
}

const namesIn = async (directory: string): Promise<string[]> => (await readdir(directory)).sort();

const absent = (error: NodeJS.ErrnoException): undefined => {
  if (error.code === 'ENOENT') return undefined;
  throw error;
};

/** Clones where the filesystem can (independent inodes, shared blocks), else hardlinks, else plain copies. */
async function chooseSharing(machineRoot: string, rootfs: string): Promise<string> {
  const sample = join(machineRoot, 'usr/lib/os-release');
  const probe = join(rootfs, '.probe');
  await lstat(sample).catch((cause: unknown) => {
    throw new CoppiceError('unsupported', `the image host cannot be made: ${sample} is missing`, {
      hint: 'Import an image from a directory or an archive instead: coppice images import.',
      cause,
    });
  });
  for (const flags of ['--reflink=always', '--link']) {
    const tried = await runProgram(['cp', '--archive', flags, '--', sample, probe], { accept: [1] });
    await runProgram(['rm', '--force', '--', probe]);
    if (tried.exitCode === 0) return flags;
  }
  return '--reflink=auto';
}

/**
 * What not every account of the machine may read is private by its owner's own word: files that others may not
 * read, directories that others may not enter. Then files whose name says that they hold credentials,
 * and things that are no files at all.
 */
async function dropPrivate(rootfs: string, signal: AbortSignal | undefined): Promise<void> {
  const named = credentialNames.flatMap((name, i) => (i === 0 ? ['-name', name] : ['-o', '-name', name]));
  const roots = ['usr', 'etc', ...mergedNames].map((name) => join(rootfs, name));
  const present = [];
  for (const root of roots) if ((await lstat(root).catch(absent))?.isDirectory()) present.push(root);
  await runProgram(
    [
      'find',
      ...present,
      '-xdev',
      '(',
      ...['(', '-type', 'f', '!', '-perm', '-0004', ')'],
      ...['-o', '(', '-type', 'd', '!', '-perm', '-0001', ')'],
      ...['-o', '(', '-type', 'f', '(', ...named, ')', ')'],
      ...['-o', '(', '!', '-type', 'f', '!', '-type', 'd', '!', '-type', 'l', ')'],
      ')',
      ...['-prune', '-exec', 'rm', '-rf', '--', '{}', '+'],
    ],
    { signal },
  );
}

/** Last, so that it replaces whatever the machine had under these names; `wx` proves that nothing of it is left. */
async function synthesise(rootfs: string): Promise<void> {
  for (const [path, target] of synthesisedLinks) await makeLink(target, join(rootfs, path));
  for (const { path, mode, text } of synthesisedFiles) {
    const file = join(rootfs, path);
    await writeFile(file, text, { flag: 'wx', mode });
    await chmod(file, mode);
    await utimes(file, 0, 0);
    const owner = path.startsWith('home/user/') ? 1000 : 0;
    await chown(file, owner, path.endsWith('shadow') ? 42 : owner);
  }
}

async function makeLink(target: string, path: string): Promise<void> {
  await symlink(target, path);
  await lutimes(path, 0, 0);
}

/**
 * Nothing in it tells when it was made: two homes of one machine have the same image by its digest, so that what is exported
 * from one fits the other. Directories are the image's own also where its files are shared with the machine.
 */
async function settleTimes(rootfs: string, signal: AbortSignal | undefined): Promise<void> {
  await runProgram(['find', rootfs, '-xdev', '-type', 'd', '-exec', 'touch', '--date=@0', '--', '{}', '+'], {
    signal,
  });
}
