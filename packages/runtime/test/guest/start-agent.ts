import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectGuest, type ExitStatus, type Guest, type ProcessRequest } from '../../src/index.ts';

const agentPath = resolve(import.meta.dirname, '../../../../guest/build/coppice-agent');

export interface Agent {
  readonly guest: Guest;
  readonly socketPath: string;
  /** A directory of the test's own, in which the agent may do what it likes. */
  readonly dir: string;
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

/** A real agent that listens on a socket of its own, in namespaces of its own; as PID 1 of its own process namespace when asked. */
export const startAgent = async (options: { asInit?: boolean } = {}): Promise<Agent> => {
  if (!existsSync(agentPath)) throw new Error(`${agentPath} is not there: run make -C guest`);
  const dir = mkdtempSync(join(tmpdir(), 'coppice-guest-'));
  const socketPath = join(dir, 'agent.sock');
  // Hostname and mounts of the machine are out of its reach, whatever a test asks of it.
  const isolation = ['--mount', '--uts', '--ipc'];
  if (options.asInit) isolation.push('--pid', '--fork', '--kill-child', '--mount-proc');
  const command = ['unshare', ...isolation, agentPath, '--listen', socketPath];
  const child = spawn(command[0]!, command.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = new Promise<void>((settle) => child.once('exit', () => settle()));
  const connectWhenReady = async () => {
    await until('the socket of the agent', () => existsSync(socketPath) || child.exitCode !== null);
    return connectGuest(socketPath);
  };
  const guest = await connectWhenReady().catch(async (error) => {
    child.kill('SIGKILL');
    await ended;
    rmSync(dir, { recursive: true, force: true });
    throw error;
  });
  return {
    guest,
    socketPath,
    dir,
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
