import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../../programs/run-program.ts';

/** Older ones do not know the vDSO of current kernels, and fail in the middle of a restore. */
const leastMajor = 4;
const shownChars = 500;

/**
 * Why the memory of containers cannot be kept on this machine, as exactly as it can be told. Where CRIU would do, the
 * reason is that this driver does not drive it: a checkpoint that lacks memory is worse than none.
 */
export const criuRefusal = async (program = 'criu'): Promise<string> => {
  let version: string;
  try {
    const { stdout } = await runProgram([program, '--version']);
    version = /Version:\s*(\S+)/.exec(stdout)?.[1] ?? 'unknown';
  } catch (error) {
    if (error instanceof CoppiceError && error.code === 'unsupported') return 'CRIU is not installed';
    throw error;
  }
  if (!(Number.parseInt(version, 10) >= leastMajor))
    return `CRIU ${version} is installed, and ${leastMajor} or later is needed`;
  const { exitCode, stdout, stderr } = await runProgram([program, 'check'], { accept: [1] });
  if (exitCode !== 0)
    return `CRIU ${version} does not pass \`criu check\`: ${`${stdout}${stderr}`.trim().slice(0, shownChars)}`;
  return `CRIU ${version} passes \`criu check\`, but this driver does not use it yet`;
};
