import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol/errors';
import { daemonFailure } from './daemon-failure.ts';
import { findDaemonProgram } from './daemon-program.ts';
import { findRunningDaemon, type RunningDaemon } from './running-daemon.ts';

const pollMs = 20;

/** Starts a daemon that goes on when this command ends; resolves when it answers. */
export const startDetached = async (
  home: string,
  signal: AbortSignal,
  options: readonly string[] = [],
): Promise<RunningDaemon> => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-up-'));
  const said = join(directory, 'stderr');
  const stderr = openSync(said, 'w', 0o600);
  try {
    const child = spawn(process.execPath, [findDaemonProgram(), '--home', home, ...options], {
      detached: true,
      cwd: '/',
      stdio: ['ignore', 'ignore', stderr],
    });
    const running = await untilAnswers(child, home, () => readFileSync(said, 'utf8'), signal);
    child.unref();
    return running;
  } finally {
    closeSync(stderr);
    rmSync(directory, { recursive: true, force: true });
  }
};

/** Waits until a daemon that was just started answers; when it ends instead, throws what it said. */
export const untilAnswers = async (
  child: ChildProcess,
  home: string,
  said: () => string,
  signal: AbortSignal,
): Promise<RunningDaemon> => {
  const failed = once(child, 'error').then(([error]) => {
    throw error;
  });
  const answers = async (): Promise<RunningDaemon> => {
    for (;;) {
      const ended = child.exitCode !== null || child.signalCode !== null;
      if (ended) throw daemonFailure(child.exitCode, said());
      if (signal.aborted) {
        child.kill('SIGTERM');
        throw new CoppiceError('cancelled', 'interrupted while the daemon started');
      }
      const running = await findRunningDaemon(home);
      if (running?.pid === child.pid) return running as RunningDaemon;
      await delay(pollMs);
    }
  };
  return Promise.race([answers(), failed]);
};
