import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../../programs/run-program.ts';

export interface Platform {
  readonly name: string;
  readonly version: string;
  /** Why the ones before it were not taken, for people. */
  readonly passedOver: readonly string[];
}

const deadlineMs = 15_000;

/** KVM is left out: where the machine has the device without the hardware, whatever opens it hangs and cannot be killed. */
const candidates = ['systrap', 'ptrace'];

const findProgram = (): string | undefined =>
  ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin']
    .map((folder) => join(folder, 'runsc'))
    .find((path) => existsSync(path));

/** The newest runsc of this machine, or undefined. */
export const findRunsc = (configured?: string): string | undefined => configured ?? findProgram();

const tryPlatform = async (
  program: string,
  platform: string,
  signal: AbortSignal,
): Promise<string | undefined> => {
  const state = mkdtempSync(join(tmpdir(), 'coppice-runsc-'));
  try {
    const args = [
      '--root',
      state,
      '--network=none',
      `--platform=${platform}`,
      '--ignore-cgroups',
      '--rootless=false',
    ];
    // `do` runs a program in a sandbox over the machine's own files, writing nothing of them.
    await runProgram([program, ...args, 'do', '--force-overlay', 'true'], {
      deadlineMs,
      signal,
    });
    return undefined;
  } catch (error) {
    return error instanceof CoppiceError ? error.message : String(error);
  } finally {
    rmSync(state, { recursive: true, force: true });
  }
};

/** Starts a sandbox on each platform until one works, each within a deadline. Given up with the signal. */
export const probePlatform = async (program: string, signal: AbortSignal): Promise<Platform> => {
  const { stdout } = await runProgram([program, '--version'], { deadlineMs, signal });
  const version = stdout.split('\n')[0]?.replace('runsc version ', '').trim() ?? 'unknown';
  const passedOver: string[] = [];
  for (const name of candidates) {
    const failure = await tryPlatform(program, name, signal);
    signal.throwIfAborted();
    if (failure === undefined) return { name, version, passedOver };
    passedOver.push(`${name}: ${failure}`);
  }
  throw new CoppiceError(
    'unsupported',
    `runsc ${version} works on no platform here: ${passedOver.join('; ')}`,
    {
      hint: 'Update runsc, or use the container driver.',
    },
  );
};
