import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { guestProgram } from '@coppice/testkit';
import { connectGuest, type ExitStatus, type Guest, type ProcessRequest } from '../../src/index.ts';

const agentPath = guestProgram('coppice-agent');
/** Where an agent that is built with sanitizers writes what they find. */
const reports = process.env.COPPICE_GUEST_PROGRAMS && join(process.env.COPPICE_GUEST_PROGRAMS, 'reports');

export interface Agent {
  readonly guest: Guest;
  readonly socketPath: string;
  /** A directory of the test's own, in which the agent may do what it likes. */
  readonly dir: string;
  /** Of the agent, as this machine counts. */
  readonly pid: number;
  /** Ends as the agent ends. */
  readonly process: ChildProcess;
  stop(): Promise<void>;
}

/** Waits for something to become true; what it waits for is said when it never does. */
export const until = async (what: string, condition: () => boolean | Promise<boolean>): Promise<void> => {
  const deadline = performance.now() + 60_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`it never came: ${what}`);
    await sleep(5);
  }
};

interface Confinement {
  /** The one directory of this machine that can be written to. */
  readonly dir?: string;
  readonly asInit?: boolean;
  /** The agent's own arguments. */
  readonly args: readonly string[];
}

/**
 * The command line of an agent for which this machine is its programs, read-only, and one directory: whatever a test asks of it,
 * on purpose or with a mutated path, nothing outside of that directory can change. The descriptor 3 says its process id.
 */
export const confinedAgent = ({ dir, asInit = false, args }: Confinement): [string, ...string[]] => [
  'bwrap',
  ...['--unshare-uts', '--unshare-ipc', '--cap-add', 'ALL', '--die-with-parent', '--info-fd', '3'],
  ...['usr', 'bin', 'sbin', 'lib', 'lib64', 'etc'].flatMap((name) => [
    '--ro-bind-try',
    `/${name}`,
    `/${name}`,
  ]),
  ...['--dev', '/dev', '--dir', '/root', '--dir', '/mnt', '--tmpfs', '/tmp', '--tmpfs', '/run'],
  ...(asInit ? ['--unshare-pid', '--as-pid-1', '--proc', '/proc'] : ['--ro-bind', '/proc', '/proc']),
  ...['--ro-bind', agentPath, agentPath],
  ...[dir, reports].flatMap((place) => (place ? ['--bind', place, place] : [])),
  ...['--chdir', '/', '--', agentPath, ...args],
];

/** The process id of an agent that was started by that command line. */
const pidOf = async (child: ChildProcess): Promise<number> => {
  const info = await collect(child.stdio[3] as Readable);
  return (JSON.parse(info.toString()) as { 'child-pid': number })['child-pid'];
};

/** A real agent that listens on a socket of its own, confined; as PID 1 of its own process namespace when asked. */
export const startAgent = async (options: { asInit?: boolean } = {}): Promise<Agent> => {
  if (!existsSync(agentPath)) throw new Error(`${agentPath} is not there: run make -C native`);
  const dir = mkdtempSync(join(tmpdir(), 'coppice-guest-'));
  const socketPath = join(dir, 'agent.sock');
  const [program, ...args] = confinedAgent({ dir, ...options, args: ['--listen', socketPath] });
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
  const ended = new Promise<void>((settle) => child.once('exit', () => settle()));
  const connectWhenReady = async () => {
    await until('the socket of the agent', () => existsSync(socketPath) || child.exitCode !== null);
    return [await connectGuest(socketPath), await pidOf(child)] as const;
  };
  const [guest, pid] = await connectWhenReady().catch(async (error) => {
    child.kill('SIGKILL');
    await ended;
    rmSync(dir, { recursive: true, force: true });
    throw error;
  });
  return {
    guest,
    socketPath,
    dir,
    pid,
    process: child,
    async stop() {
      if (child.exitCode === null && child.signalCode === null) await guest.shutdown(0).catch(() => {});
      guest.close();
      child.kill('SIGKILL');
      await ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
};

export interface Finished {
  readonly stdout: string;
  readonly stderr: string;
  readonly exit: ExitStatus;
}

/** Runs a command to its end with an empty input. */
export const run = async (
  guest: Guest,
  request: ProcessRequest | ProcessRequest['argv'],
): Promise<Finished> => {
  const child = await guest.exec('argv' in request ? request : { argv: request });
  await child.endStdin();
  const parts = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  for await (const { stream, data } of child.output) parts[stream].push(data);
  return {
    stdout: Buffer.concat(parts.stdout).toString(),
    stderr: Buffer.concat(parts.stderr).toString(),
    exit: await child.exit,
  };
};

export const shell = (script: string): ProcessRequest['argv'] => ['sh', '-c', script];

/** The resident memory of a process. */
export const residentBytes = async (guest: Guest, pid: number): Promise<number> => {
  const { stdout } = await run(guest, ['grep', 'VmRSS', `/proc/${pid}/status`]);
  return Number(/(\d+) kB/.exec(stdout)?.[1]) * 1024;
};

export const collect = async (chunks: AsyncIterable<Uint8Array>): Promise<Buffer> => {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
};

export async function* once(data: Uint8Array | string): AsyncGenerator<Uint8Array> {
  yield typeof data === 'string' ? Buffer.from(data) : data;
}
