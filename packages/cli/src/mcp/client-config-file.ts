import { copyFile, mkdir, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { ClientConfig, ServerEntry } from './clients.ts';

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
  if (client.format === 'toml') {
    assertPlainTables(client, before);
    const kept = before
      .split(/^(?=\[)/m)
      .filter((part) => !new RegExp(`^\\[${client.key}\\.${serverName}(\\.[^\\]]*)?\\]`).test(part))
      .join('');
    const gap = kept === '' || kept.endsWith('\n\n') ? '' : kept.endsWith('\n') ? '\n' : '\n\n';
    return `${kept}${gap}${toml(client, server)}`;
  }
  const config = parse(client, before);
  const servers = config[client.key] ?? {};
  if (typeof servers !== 'object' || Array.isArray(servers))
    throw unreadable(client, `\`${client.key}\` is no object`);
  const next = { ...config, [client.key]: { ...servers, [serverName]: client.entry(server) } };
  return `${JSON.stringify(next, null, 2)}\n`;
};

/** Tables may be written in more than one way; a second one of ours would make the file useless to its client. */
const assertPlainTables = (client: ClientConfig, text: string): void => {
  const inline = new RegExp(`^\\s*${client.key}\\s*(\\.|=)`, 'm');
  const quoted = new RegExp(
    `^\\s*\\[\\s*("${client.key}"|'${client.key}'|${client.key}\\s*\\.\\s*["']${serverName}["'])`,
    'm',
  );
  if (inline.test(text) || quoted.test(text))
    throw unreadable(client, `it writes \`${client.key}\` in a way that cannot be added to safely`);
};

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
  const backup = before === '' ? undefined : `${path}.before-coppice`;
  if (backup !== undefined) await copyFile(path, backup);
  await writeFile(`${path}.new`, after, { mode });
  await rename(`${path}.new`, path);
  return backup;
};
