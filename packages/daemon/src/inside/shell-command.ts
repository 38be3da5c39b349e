import { isAbsolute, posix } from 'node:path';
import { CoppiceError, workDirectory } from '@coppice/protocol';

/** A relative path starts at the work directory. */
export const guestPath = (path: string): string =>
  isAbsolute(path) ? path : posix.normalize(posix.join(workDirectory, path));

interface ShellCommand {
  readonly command: string[];
  readonly cwd: string | undefined;
}

/** An image may lack bash and the work directory; then its own shell runs where its user starts. */
const choose = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; fi; exec /bin/sh -c "$0"';
const enter = `cd ${workDirectory} 2>/dev/null; `;

/**
 * Runs a command line as agents expect it: in bash, in the work directory. Most images have both, so that is tried first. A
 * command that could not be started has done nothing, and is started again the careful way.
 */
export const inShell = async <T>(
  commandLine: string,
  workdir: string | undefined,
  run: (words: ShellCommand) => Promise<T>,
): Promise<T> => {
  const cwd = workdir === undefined ? workDirectory : guestPath(workdir);
  try {
    return await run({ command: ['/bin/bash', '-c', commandLine], cwd });
  } catch (error) {
    if (!(error instanceof CoppiceError) || error.code !== 'not_found') throw error;
  }
  const careful =
    workdir === undefined ? { script: `${enter}${choose}`, cwd: undefined } : { script: choose, cwd };
  return run({ command: ['/bin/sh', '-c', careful.script, commandLine], cwd: careful.cwd });
};
