import type { ErrorAnswer, ErrorKind } from '../dialect.ts';

const kinds: Readonly<Record<ErrorKind, readonly [status: number, type: string, code: string | null]>> = {
  budget: [402, 'insufficient_quota', 'insufficient_quota'],
  invalid: [400, 'invalid_request_error', null],
  forbidden: [403, 'invalid_request_error', 'model_not_allowed'],
  not_found: [404, 'invalid_request_error', 'model_not_found'],
  too_large: [413, 'invalid_request_error', null],
  busy: [429, 'requests', 'rate_limit_exceeded'],
  upstream: [502, 'server_error', null],
};

/** The form of error that both APIs of OpenAI share. */
export const openaiError = (kind: ErrorKind, message: string): ErrorAnswer => {
  const [status, type, code] = kinds[kind];
  return { status, headers: {}, body: JSON.stringify({ error: { message, type, param: null, code } }) };
};
