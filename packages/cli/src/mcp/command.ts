import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import type { Cli } from '../cli.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';
import { snippet, writeConfig } from './client-config-file.ts';
import { type ClientConfig, clients, type ServerEntry } from './clients.ts';
import { assertToken, DaemonDoor } from './daemon-door.ts';
import { StdioShim } from './stdio-shim.ts';

interface ServeOptions {
  readonly toolsets?: string;
  readonly tools?: string;
  readonly readOnly?: boolean;
  readonly fullSchemas?: boolean;
  readonly session?: string;
  readonly home?: string;
}

const toolOptions = (): readonly Option[] => [
  new Option('--toolsets <names>', 'which tools are offered, separated by commas (default: default)'),
  new Option('--tools <names>', 'single tools, besides the toolsets or instead of the default ones'),
  new Option('--read-only', 'only tools that change nothing'),
  new Option('--full-schemas', 'list the bounds of all parameters and what each answer holds, for programs'),
  new Option('--session <name>', 'whose workspaces are one’s own (default: one for each token)'),
];

const toolsetsHelp = `
Toolsets:
  default    what most work needs, in less than 4,000 tokens
  core       eight tools for weaker models: workspace_create, exec, file_write, file_read, file_list,
             snapshot_create, snapshot_restore, workspace_destroy
  guide      what the workflow guide for agents uses
  all        every tool
  by subject workspaces, exec, files, snapshots, forks, images, network, git, swarms, notes`;

/** The options as words of a command line, and as parameters of the daemon. */
const chosenTools = (
  options: ServeOptions,
): readonly (readonly [flag: string, name: string, value: string])[] => [
  ...(options.toolsets === undefined ? [] : [['--toolsets', 'toolsets', options.toolsets] as const]),
  ...(options.tools === undefined ? [] : [['--tools', 'tools', options.tools] as const]),
  ...(options.readOnly ? [['--read-only', 'read_only', 'true'] as const] : []),
  ...(options.fullSchemas ? [['--full-schemas', 'full_schemas', 'true'] as const] : []),
  ...(options.session === undefined ? [] : [['--session', 'session', options.session] as const]),
];

const serve = async (cli: Cli, options: ServeOptions): Promise<void> => {
  const { env } = cli.io;
  const url = options.home === undefined ? env.COPPICE_URL || undefined : undefined;
  const token = options.home === undefined ? env.COPPICE_TOKEN || undefined : undefined;
  assertToken(url, token);
  const query = new URLSearchParams(chosenTools(options).map(([, name, value]) => [name, value]));
  const door = new DaemonDoor({ home: cli.home, url, token, query, signal: cli.signal });
  await door.open();
  await new StdioShim(door, cli.io.stdout, cli.signal).serve(cli.io.stdin);
};

/** The command beside this very program, so that clients that know no PATH find it. */
const findCommand = (from = import.meta.filename): string => {
  for (let directory = dirname(from); ; directory = dirname(directory)) {
    const path = join(directory, 'bin', 'coppice');
    if (existsSync(path)) return path;
    if (directory === dirname(directory)) return 'coppice';
  }
};

interface InstallOptions extends ServeOptions {
  readonly write?: boolean;
}

const findClient = (name: string): ClientConfig => {
  const known = clients(process.cwd());
  const client = Object.hasOwn(known, name) ? known[name] : undefined;
  if (client !== undefined) return client;
  throw new CoppiceError('invalid_argument', `there is no client ${name}`, {
    hint: `Choose one of ${Object.keys(known).join(', ')}.`,
  });
};

/** What a client must give to `coppice mcp` so that it reaches the daemon that this command would. */
const environmentOf = (cli: Cli, { home }: InstallOptions): Record<string, string> => {
  const { COPPICE_URL: url, COPPICE_TOKEN: token, COPPICE_HOME: otherHome } = cli.io.env;
  if (home !== undefined) return { COPPICE_HOME: cli.home };
  if (url) assertToken(url, token);
  return {
    ...(url ? { COPPICE_URL: url } : otherHome ? { COPPICE_HOME: cli.home } : {}),
    ...(token ? { COPPICE_TOKEN: token } : {}),
  };
};

const install = async (cli: Cli, name: string, options: InstallOptions): Promise<void> => {
  const client = findClient(name);
  const server: ServerEntry = {
    command: findCommand(),
    args: [
      'mcp',
      ...chosenTools(options).flatMap(([flag, , value]) => (value === 'true' ? [flag] : [flag, value])),
    ],
    env: environmentOf(cli, options),
  };
  const backup = options.write ? await writeConfig(client, server) : undefined;
  const text = snippet(client, server);
  const kept = backup === undefined ? '' : ` What was there is kept in ${backup}.`;
  const result = { client: name, path: client.path, written: options.write === true, config: text };
  cli.out.result({ ...result, ...(backup === undefined ? {} : { backup }) }, () =>
    options.write
      ? `Written to ${client.path}.${kept} Restart ${client.title.split(',')[0]} to use it.`
      : `# ${client.title}: ${client.path}\n${text.trimEnd()}`,
  );
};

export const define: DefineCommand = (program, cli) => {
  const mcp = verb(program, 'mcp', 'Serve agents over MCP on standard input and output')
    .addHelpText('after', toolsetsHelp)
    .addHelpText(
      'after',
      examples(
        'coppice mcp --toolsets default,git',
        'coppice mcp --toolsets all --read-only',
        'coppice mcp install claude-code --write',
      ),
    )
    .action((options: ServeOptions) => serve(cli, options));
  const installing = verb(mcp, 'install', 'Print the configuration for a client, or write it')
    .argument('<client>', 'claude-code, claude-desktop, cursor, vscode or codex')
    .option('-w, --write', 'write it into the file of the client, next to what is there')
    .action((name: string, options: InstallOptions) => install(cli, name, options));
  for (const command of [mcp, installing]) for (const option of toolOptions()) command.addOption(option);
};
