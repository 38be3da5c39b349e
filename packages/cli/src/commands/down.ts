import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { Coppice } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { daemonFailure } from '../daemon/daemon-failure.ts';
import { findDaemonProgram } from '../daemon/daemon-program.ts';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { stopDaemon } from '../daemon/stop-daemon.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface Options {
  readonly stop?: boolean;
  readonly purge?: boolean;
  readonly yes?: boolean;
}

const confirmPurge = async (cli: Cli): Promise<void> => {
  const hint = 'Nothing was removed. To go on without being asked: coppice down --purge --yes';
  if (!cli.io.stdin.isTTY || cli.out.isJson) {
    throw new CoppiceError(
      'invalid_argument',
      `--purge removes everything in ${cli.home} and must be confirmed`,
      {
        hint,
      },
    );
  }
  const dialogue = createInterface({ input: cli.io.stdin, output: cli.io.stderr });
  const answer = await dialogue.question(
    `Remove every sandbox, snapshot and image in ${cli.home}? There is no way back. [y/N] `,
  );
  dialogue.close();
  if (!/^y(es)?$/i.test(answer.trim())) throw new CoppiceError('cancelled', 'not confirmed', { hint });
};

/** How many were stopped, and how many go on. */
const leaveSandboxes = async (cli: Cli, stop: boolean): Promise<{ stopped: number; running: number }> => {
  // By its home: the environment may point to another daemon.
  using coppice = new Coppice({ home: cli.home });
  const { signal } = cli;
  const running = await coppice.sandboxes.list({ state: 'running', signal });
  if (!stop) return { stopped: 0, running: running.length };
  await Promise.all(running.map(({ id }) => coppice.sandboxes.at(id).stop({ signal })));
  return { stopped: running.length, running: 0 };
};

const purge = async (home: string): Promise<void> => {
  const child = spawn(process.execPath, [findDaemonProgram(), '--home', home, '--purge'], {
    cwd: '/',
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  // Not `close`: a program that it started may hold the pipe for a moment longer.
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw daemonFailure(code, said);
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'down', 'Stop the daemon; sandboxes keep running and the next `up` finds them')
    .option('--stop', 'stop the running sandboxes first')
    .option('--purge', 'remove everything of this home: sandboxes, snapshots, images, mounts, rules')
    .option('-y, --yes', 'do not ask before a purge')
    .action(async (options: Options) => {
      if (options.purge && !options.yes) await confirmPurge(cli);
      const daemon = await findRunningDaemon(cli.home);
      const { running, stopped } = await cli.out.during('stopping', async () => {
        const left = daemon ? await leaveSandboxes(cli, options.stop === true) : { stopped: 0, running: 0 };
        if (daemon) await stopDaemon(daemon.pid, cli.signal);
        if (options.purge) await purge(cli.home);
        return left;
      });
      const value = {
        was_running: daemon !== undefined,
        sandboxes_stopped: stopped,
        sandboxes_left_running: options.purge ? 0 : running,
        purged: options.purge === true,
      };
      cli.out.result(value, () => {
        if (options.purge) return `Stopped, and removed everything of ${cli.home}.`;
        if (daemon === undefined) return `The daemon of ${cli.home} was not running.`;
        const [many, them] = running === 1 ? ['1 sandbox goes', 'it'] : [`${running} sandboxes go`, 'them'];
        return running === 0
          ? 'The daemon has stopped.'
          : `The daemon has stopped. ${many} on; the next \`coppice up\` finds ${them}. To stop ${them} too: coppice up -d && coppice down --stop`;
      });
    });
};
