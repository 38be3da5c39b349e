import { CoppiceError, type ErrorCode, errorKinds } from '@coppice/protocol/errors';
import { printable } from './format.ts';

interface Failure {
  readonly text: string;
  readonly json: unknown;
  readonly exitCode: number;
}

/**
 * Every failure of every command ends here: what is said, and the exit code. `hints` stand in for those of the table,
 * which speak of the daemon.
 */
export const describeError = (
  error: unknown,
  hints: Readonly<Partial<Record<ErrorCode, string>>> = {},
): Failure => {
  const known = toCoppiceError(error);
  const { code, message, details } = known;
  const hint = (known.hint === errorKinds[code].hint ? hints[code] : undefined) ?? known.hint;
  const unexpected = code === 'internal' && known.cause instanceof Error ? `\n${known.cause.stack}` : '';
  return {
    text: `error: ${printable(message)}\nhint: ${printable(hint)}${unexpected}`,
    json: { error: { code, message, hint, ...(details === undefined ? {} : { details }) } },
    exitCode: details?.step === 'program' ? notExecuted(details) : errorKinds[code].exitCode,
  };
};

/** As every shell says that a command is not there, or that it is there and cannot be executed. */
const notExecuted = ({ errno }: Readonly<Record<string, unknown>>): number =>
  errno === 'ENOENT' || errno === 'ENOTDIR' ? 127 : 126;

/** After Ctrl-C a connection is gone because the command closed it: that is no news about the daemon. */
export const asInterrupted = (error: unknown): unknown =>
  error instanceof CoppiceError && error.code === 'unavailable'
    ? new CoppiceError('cancelled', 'interrupted', { cause: error })
    : error;

const toCoppiceError = (error: unknown): CoppiceError => {
  if (error instanceof CoppiceError) return error;
  const { code, path, message } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT' && path !== undefined) {
    return new CoppiceError('not_found', `${path} does not exist`, { hint: 'Check the path.', cause: error });
  }
  if ((code === 'EACCES' || code === 'EPERM') && path !== undefined) {
    return new CoppiceError('forbidden', `${path}: permission denied`, {
      hint: 'Run as a user who may, or choose another path.',
      cause: error,
    });
  }
  if (code === 'ENOSPC') return new CoppiceError('no_space', `no space left: ${message}`, { cause: error });
  if ((error as Error).name === 'AbortError')
    return new CoppiceError('cancelled', 'interrupted', { cause: error });
  return new CoppiceError('internal', message ?? String(error), { cause: error });
};
