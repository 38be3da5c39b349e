import { guestPath, workDirectory } from './fields.ts';

/** Agents write for bash; where an image has none, its own shell must do. */
const choose = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; fi; exec /bin/sh -c "$0"';
/** An image of others may have no such directory; then commands run where its user starts. */
const enter = `cd ${workDirectory} 2>/dev/null; `;

/** The words and the directory that run a command line as agents expect it. */
export const shellCommand = (
  commandLine: string,
  workdir: string | undefined,
): { command: string[]; cwd: string | undefined } => ({
  command: ['/bin/sh', '-c', workdir === undefined ? `${enter}${choose}` : choose, commandLine],
  cwd: workdir === undefined ? undefined : guestPath(workdir),
});
