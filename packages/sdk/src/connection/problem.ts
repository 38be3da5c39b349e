import type { Problem } from '@coppice/protocol';
import { CoppiceError, errorKinds, isErrorCode } from '@coppice/protocol/errors';

const codeOfStatus = (status: number) => {
  if (status === 401) return 'unauthenticated';
  if (status === 403) return 'forbidden';
  if (status === 404) return 'not_found';
  if (status === 413) return 'too_large';
  if (status === 429) return 'rate_limited';
  if (status === 502 || status === 503) return 'unavailable';
  if (status === 504) return 'timeout';
  return status >= 500 ? 'internal' : 'invalid_argument';
};

/** The error that the daemon threw, built again from its problem+json answer. */
export const errorFromProblem = (status: number, body: string, asked: string): CoppiceError => {
  let problem: Partial<Problem> = {};
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === 'object' && parsed !== null) problem = parsed;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (typeof problem.code !== 'string' || !isErrorCode(problem.code)) {
    const said = body.trim().slice(0, 200);
    return new CoppiceError(
      codeOfStatus(status),
      `${asked} was answered with status ${status}${said ? `: ${said}` : ''}`,
    );
  }
  return new CoppiceError(problem.code, problem.detail ?? problem.title ?? problem.code, {
    hint: problem.hint ?? errorKinds[problem.code].hint,
    ...(problem.details ? { details: problem.details } : {}),
  });
};

/** A success that no daemon would have put so. */
export const errorFromForeignAnswer = (
  body: string,
  where: string,
  asked: string,
  cause: unknown,
): CoppiceError =>
  new CoppiceError('unavailable', `${asked} was answered with no JSON: ${body.trim().slice(0, 200)}`, {
    hint: `Look whether it is a Coppice daemon that listens at ${where}.`,
    cause,
  });

/** What a failed connection means to the caller. */
export const errorFromConnection = (cause: NodeJS.ErrnoException, where: string, asked: string): Error => {
  if (cause.name === 'AbortError' || cause.code === 'ABORT_ERR') {
    return new CoppiceError('cancelled', `${asked} was cancelled`, { cause });
  }
  if (cause.code === 'EACCES') {
    return new CoppiceError('forbidden', `this user may not connect to the daemon at ${where}`, {
      hint: 'Run as the user that runs the daemon, or set COPPICE_URL and COPPICE_TOKEN.',
      cause,
    });
  }
  const refused = cause.code === 'ECONNREFUSED' || cause.code === 'ENOENT';
  return new CoppiceError(
    'unavailable',
    refused
      ? `no daemon answers at ${where}`
      : `the connection to the daemon at ${where} was lost during ${asked}: ${cause.message}`,
    { hint: 'Look with `coppice status`; start it with `coppice up --detach`.', cause },
  );
};

/** An error that came as a message of a stream: the call had begun before it failed. */
export const errorFromStreamEvent = (data: string): CoppiceError => {
  // A WebSocket says `message`, a problem document in server-sent events says `detail`.
  const {
    code,
    detail,
    message = detail,
    hint,
    details,
  } = JSON.parse(data) as {
    code?: string;
    detail?: string;
    message?: string;
    hint?: string;
    details?: Record<string, unknown>;
  };
  const known = code !== undefined && isErrorCode(code) ? code : 'internal';
  return new CoppiceError(known, message ?? 'the stream failed', {
    ...(hint === undefined ? {} : { hint }),
    ...(details === undefined ? {} : { details }),
  });
};
