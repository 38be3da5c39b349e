import { CoppiceError, type ErrorCode, errorKinds, type Problem } from '@coppice/protocol';
import { ZodError } from 'zod';
import { systemFailure } from '../host/system-failure.ts';

/** An answer does not repeat all of what a caller made up. */
const longestSaid = 500;

/** The bounds of numbers in plain words; what else is wrong, the schema says itself. */
const said = (issue: ZodError['issues'][number]): string => {
  if (issue.code === 'too_small' && issue.origin === 'number')
    return `must be ${issue.inclusive === false ? 'more than' : 'at least'} ${issue.minimum}`;
  if (issue.code === 'too_big' && issue.origin === 'number')
    return `must be ${issue.inclusive === false ? 'less than' : 'at most'} ${issue.maximum}`;
  return issue.message.slice(0, longestSaid);
};

const describeIssues = (error: ZodError, where: string): string =>
  error.issues
    .slice(0, 5)
    .map((issue) => {
      const path = issue.path.map(String).join('.').slice(0, longestSaid);
      return `${where}${path === '' ? '' : ` \`${path}\``}: ${said(issue)}`;
    })
    .join('; ');

/** For callers of HTTP. */
export const inputHint = 'See /docs for what this call takes.';

/** What zod found wrong, as one of our errors. */
export const invalidInput = (error: ZodError, where: string): CoppiceError =>
  new CoppiceError('invalid_argument', describeIssues(error, where), {
    hint: inputHint,
    details: {
      issues: error.issues.slice(0, 20).map((issue) => ({
        path: issue.path.map((part) => String(part).slice(0, longestSaid)),
        message: said(issue),
      })),
    },
  });

interface HttpishError {
  readonly statusCode: number;
  readonly message: string;
}

const isHttpish = (error: unknown): error is HttpishError =>
  error instanceof Error && typeof (error as { statusCode?: unknown }).statusCode === 'number';

const codeOfStatus = (status: number): ErrorCode => {
  if (status === 404) return 'not_found';
  if (status === 413) return 'too_large';
  return status < 500 ? 'invalid_argument' : 'internal';
};

/** Any failure as one of our errors; what we did not foresee says nothing of its inside to the caller. */
export const toCoppiceError = (error: unknown): CoppiceError => {
  if (error instanceof CoppiceError) return error;
  if (error instanceof ZodError) return invalidInput(error, 'request');
  if (isHttpish(error) && error.statusCode < 500)
    return new CoppiceError(codeOfStatus(error.statusCode), error.message);
  if (error instanceof Error && error.name === 'AbortError')
    return new CoppiceError('cancelled', 'the call was cancelled');
  const refused = systemFailure(error);
  if (refused !== undefined) return refused;
  return new CoppiceError('internal', 'something failed inside the daemon', { cause: error });
};

export const toProblem = (error: CoppiceError): Problem => ({
  type: `urn:coppice:error:${error.code}`,
  title: error.code.replaceAll('_', ' '),
  status: errorKinds[error.code].status,
  code: error.code,
  detail: error.message,
  hint: error.hint,
  retryable: errorKinds[error.code].retryable,
  ...(error.details === undefined ? {} : { details: { ...error.details } }),
});
