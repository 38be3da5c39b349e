import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import type { Cli } from '../cli.ts';
import { findDaemonProgram } from '../daemon/daemon-program.ts';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { systemdUnit } from '../daemon/systemd-unit.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const run = promisify(execFile);

interface Options {
  readonly name: string;
  readonly root?: string;
}

const unitFile = ({ name, root }: Options): string => {
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(name))
    throw new CoppiceError('invalid_argument', `${name} is no name of a service`, {
      hint: 'Use letters, digits, `_`, `.` and `-`.',
    });
  return join(resolve(root ?? '/'), 'etc/systemd/system', `${name}.service`);
};

/** Below another root the machine that runs is none of ours: files are written, and nothing is started. */
const systemctl = async ({ root }: Options, ...words: string[]): Promise<void> => {
  if (root !== undefined) return;
  try {
    await run('systemctl', words);
  } catch (error) {
    const { code, stderr = '' } = error as NodeJS.ErrnoException & { stderr?: string };
    throw new CoppiceError(
      'unsupported',
      code === 'ENOENT'
        ? 'there is no systemctl on this machine'
        : `systemctl ${words[0]} failed: ${stderr.trim()}`,
      {
        hint: 'Where systemd does not run, start the daemon at boot by your own means: coppice up --detach',
        cause: error,
      },
    );
  }
};

const install = async (cli: Cli, options: Options): Promise<void> => {
  const file = unitFile(options);
  const text = systemdUnit({ program: [process.execPath, findDaemonProgram()], home: cli.home });
  const before = await readFile(file, 'utf8').catch(() => undefined);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text, { mode: 0o644 });
  await systemctl(options, 'daemon-reload');
  const running = options.root === undefined ? await findRunningDaemon(cli.home) : undefined;
  // One that was started by hand holds the home; it is left alone.
  await systemctl(options, 'enable', ...(running === undefined ? ['--now'] : []), `${options.name}.service`);
  cli.out.result(
    { file, home: cli.home, changed: before !== text, started: running === undefined && !options.root },
    () =>
      [
        `${before === undefined ? 'wrote' : 'wrote again'} ${file}`,
        ...(running === undefined
          ? []
          : [
              `the daemon runs already; hand it over: coppice down && systemctl start ${options.name} (sandboxes go on)`,
            ]),
      ].join('\n'),
  );
};

const uninstall = async (cli: Cli, options: Options): Promise<void> => {
  const file = unitFile(options);
  if (!existsSync(file))
    throw new CoppiceError('not_found', `there is no service at ${file}`, {
      hint: 'Nothing was removed. `coppice service status` says what there is.',
    });
  await systemctl(options, 'disable', '--now', `${options.name}.service`);
  await rm(file);
  await systemctl(options, 'daemon-reload');
  cli.out.result({ removed: file }, () => `removed ${file}; sandboxes and data are as they were`);
};

const status = async (cli: Cli, options: Options): Promise<void> => {
  const file = unitFile(options);
  const text = await readFile(file, 'utf8').catch(() => undefined);
  const wanted = systemdUnit({ program: [process.execPath, findDaemonProgram()], home: cli.home });
  const running = options.root === undefined ? await findRunningDaemon(cli.home) : undefined;
  if (text === undefined) cli.exitCode = errorKinds.not_found.exitCode;
  const state =
    text === undefined ? 'not installed' : text === wanted ? 'installed' : 'installed by another version';
  cli.out.result(
    { file, installed: text !== undefined, current: text === wanted, running: running !== undefined },
    () =>
      cli.out.facts([
        [
          'service',
          text !== undefined && text !== wanted ? `${state}: run \`coppice service install\` again` : state,
        ],
        ['file', file],
        ['daemon', running === undefined ? 'not running' : `running (process ${running.pid})`],
      ]),
  );
};

export const define: DefineCommand = (program, cli) => {
  const service = verb(program, 'service', 'Start the daemon at boot, by systemd');
  const add = (name: string, summary: string, work: (cli: Cli, options: Options) => Promise<void>) =>
    verb(service, name, summary)
      .option('--name <name>', 'name of the service', 'coppice')
      .option('--root <dir>', 'write below this directory and start nothing, as for an image of a machine')
      .action((options: Options) => work(cli, options));
  add('install', 'Write the unit, enable it and start it', install).addHelpText(
    'after',
    examples('coppice service install', 'coppice service install --home /srv/coppice --name coppice-srv'),
  );
  add('uninstall', 'Stop it and remove the unit; sandboxes and data stay', uninstall);
  add('status', 'Say whether it is installed and as this version would write it', status);
};
