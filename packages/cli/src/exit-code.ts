import type { Exit } from '@coppice/protocol';
import { errorKinds } from '@coppice/protocol/errors';

/** The exit code that a shell would give for a command that ended so. */
export const exitCodeOf = ({ exit_code, signal, timed_out }: Exit): number => {
  if (timed_out) return errorKinds.timeout.exitCode;
  if (exit_code !== null) return exit_code;
  return 128 + (signal ?? 0);
};
