/**
 * One table of error codes for every door. The HTTP API, the MCP server and the CLI map from here
 * and nowhere else, so a code that lacks a status or an exit code does not compile.
 */
interface ErrorKind {
  readonly status: number;
  readonly exitCode: number;
  readonly retryable: boolean;
  /** What to do next, when the thrower has nothing more precise to say. */
  readonly hint: string;
}

const kind = (status: number, exitCode: number, retryable: boolean, hint: string): ErrorKind => ({
  status,
  exitCode,
  retryable,
  hint,
});

export const errorKinds = {
  invalid_argument: kind(400, 2, false, 'Correct the argument named in the message.'),
  unauthenticated: kind(401, 3, false, 'Pass the token: COPPICE_TOKEN, or the file `token` in COPPICE_HOME.'),
  forbidden: kind(403, 4, false, 'Use a token whose scope covers this, for example an admin token.'),
  not_found: kind(404, 5, false, 'List what exists, then use an id or a name from that list.'),
  ambiguous: kind(409, 6, false, 'Use a longer prefix or the whole id.'),
  name_taken: kind(409, 6, false, 'Choose another name, or remove whatever has this one.'),
  wrong_state: kind(409, 7, false, 'Check its state with `coppice info`, then start or stop it first.'),
  in_use: kind(409, 7, false, 'First remove what depends on it; the message lists it.'),
  conflict: kind(409, 8, false, 'Resolve the listed conflicts, or choose a side.'),
  no_match: kind(422, 9, false, 'Read the file again and quote the text exactly.'),
  too_large: kind(413, 10, false, 'Send less at once, or use the streaming call.'),
  unsupported: kind(422, 11, false, 'Run `coppice doctor` to see what this machine can do.'),
  build_failed: kind(422, 15, false, 'Read the output above; the message names the step that failed.'),
  unsafe: kind(422, 12, false, 'Nothing was written. Remove the entry named in the message.'),
  limit_reached: kind(429, 13, false, 'Destroy or stop something, or raise the limit in the configuration.'),
  rate_limited: kind(429, 14, true, 'Wait as long as Retry-After says, then try again.'),
  cancelled: kind(499, 130, false, 'The client disconnected; call again.'),
  internal: kind(500, 70, false, 'Run `coppice doctor`, and check the daemon’s log.'),
  corrupt: kind(500, 71, false, 'Run `coppice doctor`; restore what it names from a snapshot or a backup.'),
  unavailable: kind(503, 69, true, 'Start the daemon with `coppice up`, or try again in a moment.'),
  timeout: kind(504, 124, false, 'Raise the timeout, or run the command in the background.'),
  no_space: kind(507, 74, false, 'Delete snapshots or files, or give it a larger disk.'),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorKinds;

export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(errorKinds, code);

export interface ErrorOptions {
  readonly hint?: string;
  /** Facts for programs: conflicting paths, dependants, limits. Never a secret. */
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

/** The one error that crosses a package boundary. */
export class CoppiceError extends Error {
  readonly code: ErrorCode;
  readonly hint: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CoppiceError';
    this.code = code;
    this.hint = options.hint ?? errorKinds[code].hint;
    this.details = options.details;
  }
}
