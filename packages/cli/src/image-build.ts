import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { BuildEvent, Image } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { packContext } from '@coppice/sdk';
import type { Cli } from './cli.ts';

export interface BuildFlags {
  readonly file?: string;
  readonly tag?: string;
  readonly buildArg?: Record<string, string>;
  readonly secret?: readonly string[];
  readonly target?: string;
  readonly network?: 'none' | 'internet';
  readonly cache: boolean;
  readonly cpus?: number;
  readonly memory?: number;
  readonly disk?: number;
}

const maxSecretBytes = 524_288;

/** As docker writes it: `id=npm,src=.npmrc`, `id=token,env=TOKEN`, or `id=TOKEN` for the variable of that name. */
const readSecret = async (cli: Cli, text: string): Promise<[string, string]> => {
  const fields = new Map(
    text.split(',').map((part) => {
      const equals = part.indexOf('=');
      return equals < 0 ? ([part, ''] as const) : ([part.slice(0, equals), part.slice(equals + 1)] as const);
    }),
  );
  const id = fields.get('id') ?? '';
  const file = fields.get('src') ?? fields.get('source');
  for (const key of fields.keys())
    if (!['id', 'src', 'source', 'env', 'type'].includes(key))
      throw new CoppiceError('invalid_argument', `--secret does not know ${key}`, {
        hint: 'Write it as id=NAME,src=FILE or id=NAME,env=VARIABLE.',
      });
  if (file !== undefined) {
    const content = await readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
      throw new CoppiceError('not_found', `the secret ${file} cannot be read: ${cause.code}`, { cause });
    });
    if (Buffer.byteLength(content) > maxSecretBytes)
      throw new CoppiceError('too_large', `the secret ${file} is larger than ${maxSecretBytes} bytes`);
    return [id, content];
  }
  const variable = fields.get('env') ?? id;
  const value = cli.io.env[variable];
  if (id !== '' && value !== undefined) return [id, value];
  throw new CoppiceError(
    'invalid_argument',
    `--secret ${text} names neither a file nor a variable that is set`,
    {
      hint: 'Write it as id=NAME,src=FILE or id=NAME,env=VARIABLE.',
    },
  );
};

/** Steps and what their commands say, on standard error as they come. */
const show =
  (cli: Cli) =>
  (event: Exclude<BuildEvent, { type: 'image' }>): void => {
    if (cli.out.isJson) return;
    const { stderr } = cli.io;
    if (event.type === 'output') stderr.write(event.text);
    else if (event.type === 'warning') stderr.write(`warning: ${event.text}\n`);
    else if (event.state !== 'done') {
      const cached = event.state === 'cached' ? 'cached  ' : '';
      stderr.write(`[${event.step}/${event.steps}] ${cached}${event.text}\n`);
    }
  };

export const buildImage = async (cli: Cli, directory: string, flags: BuildFlags): Promise<Image> => {
  const { signal } = cli;
  if (flags.tag === undefined)
    throw new CoppiceError('invalid_argument', 'an image that is built needs a name', {
      hint: 'Give one: coppice images build -t team/app:1 .',
    });
  if (!(await stat(directory).catch(() => undefined))?.isDirectory())
    throw new CoppiceError('not_found', `${directory} is no directory to build from`, {
      hint: 'Name the directory whose files the Dockerfile copies; `.` is this one.',
    });
  const file = flags.file ?? join(directory, 'Dockerfile');
  const dockerfile = await readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    throw new CoppiceError('not_found', `${file} cannot be read: ${cause.code}`, {
      hint: 'Name the Dockerfile with -f.',
      cause,
    });
  });
  const secrets = await Promise.all((flags.secret ?? []).map((text) => readSecret(cli, text)));
  const { target, network, cpus, memory, disk } = flags;
  return cli.coppice.images.build({
    name: flags.tag,
    dockerfile,
    context: await packContext(directory, `${file}.dockerignore`),
    args: flags.buildArg ?? {},
    secrets: Object.fromEntries(secrets),
    no_cache: !flags.cache,
    ...(target === undefined ? {} : { target }),
    ...(network === undefined ? {} : { network }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(memory === undefined ? {} : { memory_mb: memory }),
    ...(disk === undefined ? {} : { disk_mb: disk }),
    signal,
    onEvent: show(cli),
  });
};
