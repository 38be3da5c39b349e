import { CoppiceError, type ErrorCode, errorKinds } from '@coppice/protocol/errors';

/** The daemon says on standard error why it cannot start; its exit code is the one of the table. */
export const daemonFailure = (exitCode: number | null, stderr: string): CoppiceError => {
  const lines = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
  const hintAt = lines.findLastIndex((line) => line.startsWith('hint: '));
  const said = (hintAt < 0 ? lines : lines.slice(0, hintAt)).join('\n').replace(/^coppice-daemon: /, '');
  const hint =
    hintAt < 0
      ? undefined
      : lines
          .slice(hintAt)
          .join('\n')
          .replace(/^hint: /, '');
  const codes = Object.keys(errorKinds) as ErrorCode[];
  const code = codes.find((candidate) => errorKinds[candidate].exitCode === exitCode) ?? 'unavailable';
  return new CoppiceError(code, said || `the daemon ended with ${exitCode ?? 'a signal'} while it started`, {
    ...(hint === undefined ? {} : { hint }),
  });
};
