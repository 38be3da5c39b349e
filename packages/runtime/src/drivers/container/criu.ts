import { spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { lchown, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { startFailure, systemPath } from '../../programs/run-program.ts';
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
}

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
  const { code, said } = await run(request.launch, command, request.onStarted);
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
function run(
  program: string,
  args: readonly string[],
  onStarted: (pid: number) => void,
): Promise<{ code: number | null; said: string }> {
  return new Promise((resolve, reject) => {
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
    child.once('error', (error: NodeJS.ErrnoException) => reject(startFailure(program, error)));
    child.once('close', (code) => resolve({ code, said: said.trim() }));
    if (child.pid !== undefined) onStarted(child.pid);
  });
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
