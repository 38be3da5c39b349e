import { CoppiceError } from '@coppice/protocol';

export interface Bounds {
  /** Nobody wants it any more. */
  readonly signal?: AbortSignal | undefined;
  readonly deadlineMs?: number | undefined;
}

/**
 * What the work brings, unless its time is up or nobody wants it any more: then this fails at once. The work itself goes on, and is for
 * the caller to end.
 */
export async function unlessGivenUp<T>(
  what: string,
  work: Promise<T>,
  { signal, deadlineMs }: Bounds,
): Promise<T> {
  const given = Promise.withResolvers<never>();
  work.catch(() => {});
  const onAbort = () =>
    given.reject(new CoppiceError('cancelled', `${what} was given up`, { cause: signal?.reason }));
  const timer =
    deadlineMs === undefined
      ? undefined
      : setTimeout(() => given.reject(tookTooLong(what, deadlineMs)), deadlineMs);
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, given.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}

const tookTooLong = (what: string, deadlineMs: number): CoppiceError =>
  new CoppiceError('timeout', `${what} took longer than ${deadlineMs / 1000} s and was given up`, {
    hint: 'The machine may be overloaded, or a program or a disk hangs; `coppice doctor` may say which. Try again.',
  });
