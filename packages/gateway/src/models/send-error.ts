import type { ServerResponse } from 'node:http';
import type { Dialect, ErrorKind } from './dialect.ts';

/** Answers with an error in the form that the client's library knows. Nothing happens once an answer has begun. */
export function sendError(
  dialect: Dialect,
  response: ServerResponse,
  kind: ErrorKind,
  message: string,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const answer = dialect.error(kind, message);
  response.writeHead(answer.status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(answer.body),
    ...answer.headers,
  });
  response.end(answer.body);
}
