import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, mkdir, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { ClientConfig, ServerEntry } from './clients.ts';
import { type TomlSection, tomlSections } from './toml-sections.ts';

const serverName = 'coppice';

const tomlTable = (name: string, fields: Record<string, unknown>): string =>
  [`[${name}]`, ...Object.entries(fields).map(([key, value]) => `${key} = ${JSON.stringify(value)}`)].join(
    '\n',
  );

const toml = ({ key }: ClientConfig, { command, args, env }: ServerEntry): string => {
  const tables = [tomlTable(`${key}.${serverName}`, { command, args })];
  if (Object.keys(env).length > 0) tables.push(tomlTable(`${key}.${serverName}.env`, env));
  return `${tables.join('\n\n')}\n`;
};

/** What belongs into the file of a client, alone. */
export const snippet = (client: ClientConfig, server: ServerEntry): string =>
  client.format === 'toml'
    ? toml(client, server)
    : `${JSON.stringify({ [client.key]: { [serverName]: client.entry(server) } }, null, 2)}\n`;

/** The file with our server in it and everything else as it was. */
const merged = (client: ClientConfig, server: ServerEntry, before: string): string => {
  if (client.format === 'toml') return mergedToml(client, server, before);
  const config = parse(client, before);
  const servers = config[client.key] ?? {};
  if (typeof servers !== 'object' || Array.isArray(servers))
    throw unreadable(client, `\`${client.key}\` is no object`);
  const next = { ...config, [client.key]: { ...servers, [serverName]: client.entry(server) } };
  return `${JSON.stringify(next, null, 2)}\n`;
};

/** In the place of the tables of an earlier time, or at the end. */
const mergedToml = (client: ClientConfig, server: ServerEntry, before: string): string => {
  const sections = tomlSections(before);
  if (sections === undefined) throw unreadable(client, 'it is not TOML');
  const ours = sections.filter(({ path }) => path[0] === client.key && path[1] === serverName);
  if (ours.length === 0 && sections.every((section) => !names(section, client.key))) {
    const gap = before === '' || before.endsWith('\n\n') ? '' : before.endsWith('\n') ? '\n' : '\n\n';
    return `${before}${gap}${toml(client, server)}`;
  }
  // Tables may be written in more than one way; a second one of ours would make the file useless to its client.
  if (sections.some((section) => names(section, client.key)) || ours.some(({ isPlain }) => !isPlain))
    throw unreadable(client, `it writes \`${client.key}\` in a way that cannot be added to safely`);
  return sections
    .flatMap((section) => {
      const index = ours.indexOf(section);
      if (index < 0) return section.lines;
      // What stands behind the last value belongs to what follows.
      const end = section.lines.findLastIndex((line) => !/^\s*(#.*)?$/.test(line)) + 1;
      const behind = section.lines.slice(end);
      const kept = index === ours.length - 1 ? behind : behind.filter((line) => line.trim() !== '');
      return index === 0 ? [...toml(client, server).trimEnd().split('\n'), ...kept] : kept;
    })
    .join('\n');
};

/** Whether our server, or all of them, stand there as a value rather than as a table. */
const names = ({ path, keys }: TomlSection, key: string): boolean =>
  (path.length === 0 && keys.includes(key)) ||
  (path.length === 1 && path[0] === key && keys.includes(serverName));

const parse = (client: ClientConfig, text: string): Record<string, unknown> => {
  if (text.trim() === '') return {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw unreadable(client, 'it is not a JSON object');
};

const unreadable = ({ path }: ClientConfig, why: string): CoppiceError =>
  new CoppiceError('invalid_argument', `${path} is left as it is: ${why}`, {
    hint: 'Add what the command prints without --write by hand.',
  });

/** Returns where the file is kept as it was before, if there was one that changed. */
export const writeConfig = async (client: ClientConfig, server: ServerEntry): Promise<string | undefined> => {
  const before = await readFile(client.path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const after = merged(client, server, before);
  if (after === before) return undefined;
  await mkdir(dirname(client.path), { recursive: true });
  // People keep such files elsewhere and link to them; the link stays.
  const path = before === '' ? client.path : await realpath(client.path);
  const mode = before === '' ? 0o600 : (await stat(path)).mode & 0o777;
  const backup = before === '' ? undefined : await keepCopy(path);
  // A name that nobody can have put a link at: the directory may be a project of somebody else.
  const temporary = `${path}.${randomBytes(6).toString('hex')}.new`;
  await writeFile(temporary, after, { mode, flag: 'wx' });
  await rename(temporary, path);
  return backup;
};

/** The copies of earlier times stay. */
const keepCopy = async (path: string): Promise<string> => {
  for (let count = 1; ; count += 1) {
    const copy = `${path}.before-coppice${count === 1 ? '' : `-${count}`}`;
    try {
      await copyFile(path, copy, constants.COPYFILE_EXCL);
      return copy;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
};
