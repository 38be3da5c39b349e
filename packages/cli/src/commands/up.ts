import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseListenPort } from '../args/number.ts';
import type { Cli } from '../cli.ts';
import { daemonFailure } from '../daemon/daemon-failure.ts';
import { findDaemonProgram } from '../daemon/daemon-program.ts';
import { findRunningDaemon, type RunningDaemon } from '../daemon/running-daemon.ts';
import { startDetached, untilAnswers } from '../daemon/start-daemon.ts';
import { stopDaemon } from '../daemon/stop-daemon.ts';
import { versionAdvice } from '../daemon/version-advice.ts';
import { logLine } from '../ui/log-line.ts';
import { type DefineCommand, verb } from '../verb.ts';
import { version } from '../version.ts';

/** As the daemon takes it: of no file at all it is that of nothing. */
const digestOfConfig = (home: string): string => {
  const hash = createHash('sha256');
  const path = join(home, 'config.json');
  return (existsSync(path) ? hash.update(readFileSync(path)) : hash).digest('hex');
};

const restartAdvice =
  'config.json has changed since it started. To use it: coppice down && coppice up --detach (sandboxes go on)';

const report = (cli: Cli, running: RunningDaemon, already: boolean): void => {
  const { pid, url, socket, health, configDigest } = running;
  const notices = already ? [] : running.notices;
  const changed = configDigest !== null && configDigest !== digestOfConfig(cli.home);
  const other = cli.io.env.COPPICE_HOME === undefined && cli.home !== '/var/lib/coppice';
  cli.out.result(
    {
      already_running: already,
      home: cli.home,
      pid,
      url,
      socket,
      version: health.version,
      config_changed: changed,
      notices,
    },
    () =>
      [
        `Coppice ${health.version} ${already ? 'runs already' : 'is up'}: ${url}  (process ${pid}, data in ${cli.home})`,
        ...notices,
        ...versionAdvice(health.version, version),
        ...(changed ? [restartAdvice] : []),
        'Try next:',
        ...(other ? [`  export COPPICE_HOME=${cli.home}`] : []),
        '  coppice demo                      a few seconds of what it can do',
        '  coppice create dev                a sandbox of your own',
        '  coppice exec dev -- uname -a      run something in it',
        `  ${url}/docs        the HTTP API`,
      ].join('\n'),
  );
};

/** Runs the daemon until Ctrl-C, showing its log. Sandboxes go on afterwards. */
const stayInFront = async (cli: Cli, options: readonly string[]): Promise<void> => {
  const argv = [findDaemonProgram(), '--home', cli.home, '--foreground', ...options];
  const child = spawn(process.execPath, argv, {
    stdio: ['ignore', 'ignore', 'pipe'],
    // In a group of its own, Ctrl-C of the terminal reaches it once: from here.
    detached: true,
  });
  const said: string[] = [];
  const lines = createInterface({ input: child.stderr });
  lines.on('line', (line) => {
    said.push(line);
    if (said.length > 100) said.shift();
    if (line.startsWith('{')) cli.out.note(logLine(line));
  });
  const stop = (): void => {
    child.kill('SIGTERM');
  };
  // A daemon that stops finishes what it has begun.
  cli.graceMs = 60_000;
  const exited = once(child, 'exit');
  cli.signal.addEventListener('abort', stop, { once: true });
  const running = await untilAnswers(child, cli.home, () => said.join('\n'), cli.signal);
  report(cli, running, false);
  cli.out.note('Ctrl-C stops the daemon; sandboxes go on, and the next `coppice up` finds them.');
  const [code] = (await exited) as [number | null];
  if (code !== 0) throw daemonFailure(code, said.join('\n'));
};

/** One whose pool has become read-only is ended first: the next one mounts it again. */
const findWorkingDaemon = async (cli: Cli): Promise<RunningDaemon | undefined> => {
  const running = await findRunningDaemon(cli.home);
  if (running === undefined || !running.health.problems.includes('pool')) return running;
  cli.out.note('The pool is read-only: the daemon is started again, which mounts it again.');
  await stopDaemon(running.pid, cli.signal);
  return undefined;
};

const runsAlready = ({ pid }: RunningDaemon): CoppiceError =>
  new CoppiceError('wrong_state', `the daemon runs (process ${pid}), so its database is not damaged`, {
    hint: 'To go back all the same: coppice down && coppice up --restore-backup (sandboxes go on)',
  });

/** What runs listens where it was told to when it was started. */
const refuseOtherPort = ({ url }: RunningDaemon, port: number): void => {
  if (port === 0 || (new URL(url).port || '80') === String(port)) return;
  throw new CoppiceError('wrong_state', `the daemon runs already, and listens at ${url}`, {
    hint: `To have it elsewhere: coppice down && coppice up --port ${port} (sandboxes go on)`,
  });
};

interface Options {
  readonly detach?: boolean;
  readonly port?: number;
  readonly restoreBackup?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'up', 'Start the daemon')
    .option('-d, --detach', 'leave it running in the background')
    .option(
      '--port <port>',
      'listen there and not where config.json says; 0 takes any that is free',
      parseListenPort,
    )
    .option(
      '--restore-backup',
      'go back to the last good copy of the database, at most half a minute old when it broke; what is newer is set aside',
    )
    .action(async ({ detach, port, restoreBackup }: Options) => {
      const running = await findWorkingDaemon(cli);
      const options = [
        ...(port === undefined ? [] : ['--port', String(port)]),
        ...(restoreBackup ? ['--restore-backup'] : []),
      ];
      if (running !== undefined) {
        if (restoreBackup) throw runsAlready(running);
        if (port !== undefined) refuseOtherPort(running, port);
        report(cli, running, true);
      } else if (detach) {
        const start = () => startDetached(cli.home, cli.signal, options);
        report(cli, await cli.out.during('starting the daemon', start), false);
      } else await stayInFront(cli, options);
    });
};
