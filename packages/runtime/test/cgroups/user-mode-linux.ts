import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface Ended {
  readonly said: string;
  readonly inTime: boolean;
}

/** A Linux that runs as a process, on the files of this machine, which it cannot write to. */
export class UserModeLinux {
  readonly #kernel: string;

  constructor(kernel: string) {
    this.#kernel = kernel;
  }

  /**
   * Why it cannot be used here, by booting it and starting a process in it. It depends on the processor, for one: the
   * kernels of today cannot set the registers of a process where there is AMX.
   */
  async whyNot(deadlineMs = 120_000): Promise<string | undefined> {
    if (!existsSync(this.#kernel)) return 'user-mode Linux could not be had';
    const { said, inTime } = await this.#boot('/bin/echo a process was started', deadlineMs);
    if (/^a process was started$/m.test(said)) return undefined;
    const lines = said.split('\n').filter((line) => line.trim() !== '');
    const telling = lines.filter((line) => /panic|fail|errno/i.test(line)).slice(0, 2);
    const why = inTime ? telling.join('; ') || lines.at(-1) || 'it said nothing' : `not in ${deadlineMs} ms`;
    return `user-mode Linux starts no process on this machine: ${why}`;
  }

  /** All that it said until it ended. */
  async run(command: string, deadlineMs: number): Promise<string> {
    const { said, inTime } = await this.#boot(command, deadlineMs);
    if (!inTime) throw new Error(`it did not end in ${deadlineMs} ms; it said:\n${said}`);
    return said;
  }

  async #boot(command: string, deadlineMs: number): Promise<Ended> {
    const directory = mkdtempSync(join(tmpdir(), 'coppice-uml-'));
    const init = join(directory, 'init');
    writeFileSync(
      init,
      `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc none /proc && mount -t sysfs none /sys && mount -t cgroup2 none /sys/fs/cgroup
${command}
echo o > /proc/sysrq-trigger
sleep 60
`,
      { mode: 0o755 },
    );
    const root = ['rootfstype=hostfs', 'rootflags=/', 'ro', `init=${init}`];
    const own = [
      `uml_dir=${directory}`,
      'mem=512M',
      'cgroup_no_v1=all',
      'quiet',
      'con=null',
      'con0=null,fd:1',
    ];
    // In a group of its own: a kernel that is killed leaves the processes that it ran.
    const child = spawn(this.#kernel, [...root, ...own], {
      env: { TMPDIR: directory },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    try {
      return await listen(child, deadlineMs);
    } finally {
      endGroup(child);
      rmSync(directory, { recursive: true, force: true });
    }
  }
}

const listen = (child: ChildProcess, deadlineMs: number): Promise<Ended> =>
  new Promise((resolve) => {
    let said = '';
    const finish = (inTime: boolean): void => {
      clearTimeout(timer);
      resolve({ said: said.replaceAll('\r', ''), inTime });
    };
    const timer = setTimeout(() => finish(false), deadlineMs);
    for (const stream of [child.stdout!, child.stderr!])
      stream.setEncoding('utf8').on('data', (text: string) => {
        said += text;
      });
    child.once('error', (error) => {
      said += error.message;
      finish(true);
    });
    child.once('close', () => finish(true));
  });

const endGroup = (child: ChildProcess): void => {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // All of it ended by itself.
  }
};
