import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { lchown, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { endingOf, type GiveUp, LeftBehind } from '../../driver.ts';
import { killGroup, startFailure, systemPath } from '../../programs/run-program.ts';
import { unlessGivenUp } from '../../programs/unless-given-up.ts';
import type { CheckpointRecord } from './checkpoint-record.ts';

export interface DumpRequest {
  /** The program coppice-launch. */
  readonly launch: string;
  readonly sandboxId: string;
  readonly pid: number;
  readonly directory: string;
  /** For its log: not beside the memory, for which there may be no room. */
  readonly workDir: string;
  /** The cgroup that the sandbox stands still in, before and after. */
  readonly freezer: string;
  readonly record: CheckpointRecord;
  /** Where to look for files that are watched. */
  readonly watched: readonly string[];
  /** How long it may take to get hold of every process. */
  readonly patienceS: number;
  /** Told which process it is; to end it in the middle would harm the sandbox. */
  readonly onStarted: (pid: number) => void;
  /** How long it may take in all. */
  readonly deadlineMs: number;
  readonly giveUp: GiveUp;
}

const lookAgainMs = 20;
/** When this process ends, CRIU has so long to finish. */
const leavesWithinMs = 5000;
const logName = 'criu.log';
/** What was deleted and is still open is carried in the checkpoint, up to this size each. */
const deletedFileMax = '1G';

/** For a dump and for a restore of it. Cgroups and network are made by us; the rest of the sandbox's namespaces by CRIU. */
export const sharedOptions = ({ tcp }: CheckpointRecord): string[] => [
  '--manage-cgroups=ignore',
  ...['--empty-ns', 'net', '--network-lock', 'skip'],
  ...(tcp === 'keep' ? ['--tcp-established'] : ['--tcp-close']),
  // Those that nobody has accepted yet; their peers see what they see of a server that was restarted.
  '--skip-in-flight',
  '--file-locks',
];

/**
 * Writes the memory of a sandbox that stands still. Whatever happens, the sandbox is left as it was. False where a process
 * could not be got hold of in time, which at another moment it may.
 */
export const dumpMemory = async (program: string, request: DumpRequest): Promise<boolean> => {
  const { directory, record } = request;
  const args = [
    ...['dump', '--tree', String(request.pid), '--images-dir', directory],
    ...['--work-dir', request.workDir, '--log-file', logName, '--timeout', String(request.patienceS)],
    ...['--leave-running', '--freeze-cgroup', request.freezer, '--ghost-limit', deletedFileMax],
    ...sharedOptions(record),
    ...request.watched.flatMap((place) => ['--irmap-scan-path', place]),
    ...record.mounts.flatMap((place) => ['--external', `mnt[${place}]:${place}`]),
  ];
  const command = ['dump', String(request.pid), program, ...args];
  const { code, said } = await run(request.launch, command, request);
  const log = join(request.workDir, logName);
  const reason = code === 0 ? undefined : (firstError(log) ?? said);
  rmSync(log, { force: true });
  if (reason?.startsWith('Timeout reached')) return false;
  if (reason !== undefined) throw dumpFailure(request.sandboxId, reason);
  return true;
};

/** CRIU may have run as the owner of the sandbox's user namespace. */
export const giveToRoot = async (directory: string): Promise<void> => {
  for (const name of await readdir(directory)) await lchown(join(directory, name), 0, 0);
};

/** In a session of its own: an interrupt typed at the daemon's terminal must not end it. */
async function run(
  program: string,
  args: readonly string[],
  { onStarted, giveUp, deadlineMs, freezer }: DumpRequest,
): Promise<{ code: number | null; said: string }> {
  const child = spawn(program, args, {
    detached: true,
    env: { PATH: systemPath },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString('utf8')).slice(0, 2000);
    });
  const over = new Promise<{ code: number | null; said: string }>((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => reject(startFailure(program, error)));
    child.once('close', (code) => resolve({ code, said: said.trim() }));
  });
  if (child.pid !== undefined) onStarted(child.pid);
  try {
    return await unlessGivenUp('CRIU', over, { signal: giveUp.signal, deadlineMs });
  } catch (error) {
    const isGivenUp =
      error instanceof CoppiceError && (error.code === 'cancelled' || error.code === 'timeout');
    if (!isGivenUp || child.exitCode !== null) throw error;
    return endDump({ child, over, givenUp: error, giveUp, freezer, deadlineMs });
  }
}

interface GivenUpDump {
  readonly child: ChildProcess;
  readonly over: Promise<{ code: number | null; said: string }>;
  readonly givenUp: CoppiceError;
  readonly giveUp: GiveUp;
  readonly freezer: string;
  readonly deadlineMs: number;
}

/**
 * A process that CRIU has in its hands may be in the middle of code that CRIU put there, and is of no use once CRIU is killed. So it is
 * waited for, unless the sandbox is to end, or CRIU has had its time.
 */
async function endDump({ child, over, givenUp, giveUp, freezer, deadlineMs }: GivenUpDump) {
  const sinceMs = performance.now();
  const lastMs = givenUp.code === 'timeout' ? sinceMs : sinceMs + deadlineMs;
  for (;;) {
    const ending = endingOf(giveUp.ended);
    const isDoomed = ending === 'stop' || ending === 'destroy';
    if (isDoomed || !holdsProcesses(child, freezer)) {
      await killGroup(child);
      throw givenUp;
    }
    const nowMs = performance.now();
    if (nowMs >= lastMs) {
      await killGroup(child);
      throw new HarmedByDump(givenUp);
    }
    if (ending === 'close' && nowMs - sinceMs >= leavesWithinMs) {
      child.unref();
      throw new LeftBehind('cancelled', 'CRIU is still at work; the next daemon waits for it', {
        cause: givenUp,
      });
    }
    const outcome = await Promise.race([over, sleep(lookAgainMs)]);
    if (outcome !== undefined) return outcome;
  }
}

/** CRIU had to be killed with processes of the sandbox in its hands. */
export class HarmedByDump extends CoppiceError {
  constructor(cause: CoppiceError) {
    super('timeout', 'CRIU did not end, with processes of the sandbox in its hands', {
      hint: 'The sandbox was ended: start it again. Its disk is whole; the driver gvisor keeps memory another way.',
      cause,
    });
  }
}

/** Looked at while CRIU stands still, lest it takes them meanwhile; where it does, it goes on. */
function holdsProcesses(child: ChildProcess, freezer: string): boolean {
  signalGroup(child, 'SIGSTOP');
  const pids = readFileSync(join(freezer, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean);
  const holds = pids.some(isTraced);
  if (holds) signalGroup(child, 'SIGCONT');
  return holds;
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function isTraced(pid: string): boolean {
  try {
    return !/^TracerPid:\s*0$/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return false;
    throw error;
  }
}

/** It says first why, and then what it had to give up because of that. That it may have no more descriptors is no reason. */
function firstError(log: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(log, 'utf8');
  } catch {
    // It ended before it had a log; then it said why on stderr.
    return undefined;
  }
  const lines = text.split('\n').filter((line) => line.includes('Error (') && !line.includes('rlimit:'));
  return lines[0]?.replace(/^.*?Error \([^)]*\):\s*/, '');
}

function dumpFailure(sandboxId: string, reason: string): CoppiceError {
  if (/no space left|disk quota exceeded/i.test(reason))
    return new CoppiceError('no_space', `there is no room for the memory of sandbox ${sandboxId}`, {
      hint: 'Delete snapshots and sandboxes that are no longer needed, or give the home a larger disk.',
    });
  return new CoppiceError('unsupported', `CRIU cannot keep the memory of sandbox ${sandboxId}: ${reason}`, {
    hint: 'The sandbox goes on. End the process that holds what is named, or use the driver gvisor.',
  });
}
