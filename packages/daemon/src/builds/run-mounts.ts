import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { type CopySource, copyFiles, parseOwner } from './copy-files.ts';
import { badLine, type Instruction, unsupportedLine } from './dockerfile/parse-dockerfile.ts';
import type { SandboxFiles } from './sandbox-files.ts';

export interface RunMount {
  readonly type: 'cache' | 'secret' | 'bind' | 'tmpfs';
  readonly id: string;
  /** Absolute, unless a secret is a variable alone. */
  readonly target: string;
  readonly source: string;
  readonly from: string | undefined;
  readonly variable: string | undefined;
  readonly mode: number | undefined;
  readonly owner: string;
  readonly required: boolean;
}

const known = new Set(
  'type id target dst destination source src from env mode uid gid required readonly ro rw readwrite sharing size'.split(
    ' ',
  ),
);

/** What `RUN --mount=…` asks for; `read` puts variables in. */
export function parseMount(
  value: string,
  { line }: Instruction,
  workingDir: string,
  read: (text: string) => string,
): RunMount {
  const fields = new Map<string, string>();
  for (const part of value.split(',')) {
    const equals = part.indexOf('=');
    const key = (equals < 0 ? part : part.slice(0, equals)).trim();
    if (!known.has(key)) throw unsupportedLine(line, `${key} of --mount`);
    fields.set(key, equals < 0 ? 'true' : read(part.slice(equals + 1)));
  }
  const type = fields.get('type') ?? 'bind';
  if (type !== 'cache' && type !== 'secret' && type !== 'bind' && type !== 'tmpfs')
    throw unsupportedLine(line, `--mount=type=${type}`);
  const given = fields.get('target') ?? fields.get('dst') ?? fields.get('destination');
  const source = fields.get('source') ?? fields.get('src') ?? '';
  const id =
    fields.get('id') ?? (type === 'secret' ? posix.basename(source || (given ?? '')) : (given ?? ''));
  const variable = fields.get('env');
  if (given === undefined && type !== 'secret') throw badLine(line, `--mount=type=${type} needs a target`);
  if (type === 'secret' && id === '') throw badLine(line, '--mount=type=secret needs an id');
  const inside = given ?? (variable === undefined ? `/run/secrets/${id}` : '');
  const mode = fields.get('mode');
  if (mode !== undefined && !/^0?[0-7]{3,4}$/.test(mode)) throw badLine(line, `${mode} is no mode`);
  return {
    type,
    id,
    target: inside === '' ? '' : posix.resolve(workingDir, inside),
    source,
    from: fields.get('from'),
    variable,
    mode: mode === undefined ? undefined : Number.parseInt(mode, 8),
    owner: `${fields.get('uid') ?? '0'}:${fields.get('gid') ?? '0'}`,
    required: fields.get('required') === 'true',
  };
}

/** What caches of all builds may hold on the disk of the home; those that were used least lately go first. */
const mostCacheBytes = 16 * 2 ** 30;

export interface MountParts {
  readonly files: SandboxFiles;
  /** Of the sandbox: what it gives to be kept outside is no more than could lie on its disk. */
  readonly diskBytes: number;
  readonly secrets: Readonly<Record<string, string>>;
  /** Where what is kept between builds lies. */
  readonly cacheDir: string;
  readonly sourceOf: (from: string | undefined) => Promise<CopySource>;
}

/** Undoes a mount, in the reverse order of the mounts. */
type Undo = () => Promise<void>;

/**
 * Shows each mount to one command, by copying: what is mounted is there while the command runs, and afterwards the place is as it
 * was. Secrets lie in memory and are only linked to.
 */
export async function withMounts<T>(
  mounts: readonly RunMount[],
  parts: MountParts,
  work: (env: Readonly<Record<string, string>>) => Promise<T>,
): Promise<T> {
  const env: Record<string, string> = {};
  const undo: Undo[] = [];
  try {
    for (const mount of mounts) undo.push(await show(mount, parts, env));
    return await work(env);
  } finally {
    for (const step of undo.reverse()) await step();
  }
}

async function show(mount: RunMount, parts: MountParts, env: Record<string, string>): Promise<Undo> {
  if (mount.type === 'secret') return showSecret(mount, parts, env);
  const { files, cacheDir, diskBytes } = parts;
  if (mount.type === 'bind') {
    const source = await parts.sourceOf(mount.from);
    const path = mount.source === '' ? '/' : mount.source;
    if (await source.isDirectory(path)) {
      const undo = await clear(mount.target, parts);
      await copyFiles([{ source, path }], `${mount.target}/`, files, {});
      return undo;
    }
    if ((await source.find(path)).length === 0)
      throw new CoppiceError('not_found', `there is no ${path} to mount on ${mount.target}`);
    if ((await files.stat(mount.target)) !== undefined) throw inTheWay(mount.target);
    const made = await missingParents(mount.target, files);
    await copyFiles([{ source, path }], mount.target, files, {});
    return () => files.remove(made ?? mount.target);
  }
  const undo = await clear(mount.target, parts);
  if (mount.mode !== undefined || mount.owner !== '0:0') {
    const { uid, gid } = parseOwner(mount.owner, { passwd: '', group: '' });
    await files.own(mount.target, mount.mode ?? 0o755, uid, gid);
  }
  if (mount.type === 'tmpfs') return undo;
  const kept = join(cacheDir, `${createHash('sha256').update(mount.id).digest('hex').slice(0, 40)}.tar`);
  const stored = await open(kept, 'r').catch(() => undefined);
  await stored?.close();
  if (stored !== undefined) await files.unpack(mount.target, createReadStream(kept));
  return async () => {
    try {
      await store(await files.pack(mount.target), kept, diskBytes);
      await thin(cacheDir);
    } finally {
      await undo();
    }
  };
}

async function showSecret(
  { id, target, variable, mode, owner, required }: RunMount,
  { files, secrets }: MountParts,
  env: Record<string, string>,
): Promise<Undo> {
  const value = secrets[id];
  if (value === undefined) {
    if (!required) return async () => {};
    throw new CoppiceError('invalid_argument', `the secret ${id} was not given`, {
      hint: `Give it: coppice images build --secret id=${id},src=FILE …`,
    });
  }
  if (variable !== undefined) env[variable] = value;
  if (target === '') return async () => {};
  // Below /run there is memory, and no disk.
  const place = target.startsWith('/run/') ? target : `/run/coppice-secrets/${id}`;
  await files.write(place, Buffer.from(value), { mode: (mode ?? 0o400).toString(8).padStart(3, '0'), owner });
  if (place === target) return () => files.remove(place);
  if ((await files.stat(target)) !== undefined) throw inTheWay(target);
  const made = await missingParents(target, files);
  await files.link(target, place);
  return async () => {
    await files.remove(made ?? target);
    await files.remove(place);
  };
}

/** An empty directory there; what it held comes back afterwards. */
async function clear(target: string, { files, cacheDir, diskBytes }: MountParts): Promise<Undo> {
  const found = await files.stat(target);
  if (found === undefined) {
    const made = await missingParents(target, files);
    await files.makeDirectory(target);
    return () => files.remove(made ?? target);
  }
  if (found.kind !== 'directory') throw inTheWay(target);
  const { entries } = await files.list(target);
  const before = join(cacheDir, `.before-${process.pid}-${performance.now()}.tar`);
  if (entries.length > 0) await store(await files.pack(target), before, diskBytes);
  for (const entry of entries) await files.remove(entry.path);
  return async () => {
    for (const entry of (await files.list(target)).entries) await files.remove(entry.path);
    if (entries.length === 0) return;
    await files.unpack(target, createReadStream(before));
    await rm(before, { force: true });
  };
}

/** The topmost directory above a path that is not there yet. */
async function missingParents(path: string, files: SandboxFiles): Promise<string | undefined> {
  let missing: string | undefined;
  for (
    let at = posix.dirname(path);
    at !== '/' && (await files.stat(at)) === undefined;
    at = posix.dirname(at)
  )
    missing = at;
  return missing;
}

async function store(tar: AsyncIterable<Buffer>, file: string, mostBytes: number): Promise<void> {
  await mkdir(posix.dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}.new`;
  const target = await open(draft, 'w', 0o600);
  try {
    let bytes = 0;
    for await (const chunk of tar) {
      bytes += chunk.length;
      // A file of holes is as large as it says in an archive.
      if (bytes > mostBytes)
        throw new CoppiceError('too_large', 'a mount of RUN holds more than the disk of the build', {
          hint: 'Build with a larger disk (--disk), or keep less in it.',
        });
      await target.write(chunk);
    }
    await target.close();
    await rename(draft, file);
  } catch (error) {
    await target.close().catch(() => {});
    await rm(draft, { force: true });
    throw error;
  }
}

async function thin(directory: string): Promise<void> {
  const found = await Promise.all(
    (await readdir(directory))
      .filter((name) => /^[0-9a-f]{40}\.tar$/.test(name))
      .map(async (name) => ({ path: join(directory, name), stats: await stat(join(directory, name)) })),
  );
  let bytes = 0;
  for (const { path, stats } of found.sort((a, b) => b.stats.mtimeMs - a.stats.mtimeMs)) {
    bytes += stats.size;
    if (bytes > mostCacheBytes) await rm(path, { force: true });
  }
}

const inTheWay = (target: string): CoppiceError =>
  new CoppiceError('unsupported', `${target} is in the way of what is to be mounted there`, {
    hint: 'Choose another target, or remove it in a RUN before.',
  });
