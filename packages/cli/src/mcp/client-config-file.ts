import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
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

export const writeConfig = async (client: ClientConfig, server: ServerEntry): Promise<void> => {
  const before = await readFile(client.path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const after = merged(client, server, before);
  await mkdir(dirname(client.path), { recursive: true });
  await writeFile(`${client.path}.new`, after, { mode: 0o600 });
  await rename(`${client.path}.new`, client.path);
};
