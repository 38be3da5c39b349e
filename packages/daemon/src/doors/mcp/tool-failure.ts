import { CoppiceError, type ErrorCode, errorKinds } from '@coppice/protocol';
import type { CallToolResult } from '@modelcontextprotocol/server';
import { redact } from '../../redaction/redact.ts';
import { inputHint, toCoppiceError } from '../problem.ts';
import type { Tool } from './tool.ts';

/** What an agent does next, by the kind of failure; a tool may know better. */
const nextByCode: Readonly<Record<ErrorCode, string>> = {
  invalid_argument: 'Correct the named argument and call the tool again.',
  unauthenticated: 'The server needs a valid token; ask the user to run `coppice mcp install`.',
  forbidden: 'Call workspace_list to see what is yours, or workspace_adopt to take a workspace over.',
  not_found: 'Call workspace_list to see which workspaces exist.',
  ambiguous: 'Use the id: workspace_list and snapshot_list show them.',
  name_taken: 'Choose another name; workspace_list shows which names are taken.',
  wrong_state: 'Call workspace_info to see its state, then workspace_start.',
  in_use: 'Call workspace_list to find what depends on it, and workspace_destroy what is no longer needed.',
  conflict: 'Resolve the listed conflicts, then call again.',
  no_match: 'Call file_read, and quote the text exactly as it is in the file.',
  too_large: 'Send less at once, or move a file with file_upload and file_download.',
  unsupported: 'This machine cannot do that. Continue without it, or ask the user to run `coppice doctor`.',
  build_failed: 'Read the output of the step that failed, correct the Dockerfile, and build again.',
  unsafe: 'Nothing was written. Use a path without symbolic links inside the allowed directory.',
  limit_reached: 'Call workspace_list, and workspace_destroy what is no longer needed.',
  rate_limited: 'Wait a moment, then call again.',
  cancelled: 'The call was cancelled; call again if it is still needed.',
  internal: 'Check the state with workspace_info, and tell the user.',
  corrupt: 'Call snapshot_list, and snapshot_restore the last good snapshot.',
  unavailable: 'Wait a moment, then call again.',
  timeout: 'Raise timeout_secs, or use exec_background and exec_poll.',
  no_space: 'Delete files with exec, or old snapshots with snapshot_delete.',
};

/** Advice for people at a shell is no use to an agent that has tools. */
const forShells = /`(coppice|jvs) /;

const nextStep = (error: CoppiceError, tool: Tool | undefined): string => {
  const own = tool?.next?.[error.code];
  if (own !== undefined) return own;
  const general =
    error.hint === errorKinds[error.code].hint || error.hint === inputHint || forShells.test(error.hint);
  return general ? nextByCode[error.code] : error.hint;
};

/** Output that came before the failure is of use to the agent. */
const outputOf = (error: CoppiceError): string =>
  ['stdout', 'stderr', 'output']
    .flatMap((name) => {
      const text = error.details?.[name];
      return typeof text === 'string' && text !== '' ? [`\n${name}:\n${text}`] : [];
    })
    .join('');

export interface Failure {
  readonly result: CallToolResult;
  readonly error: CoppiceError;
}

export interface FailureSetting {
  readonly tool?: Tool;
  /** Advice as it goes for the tools that the caller has. */
  readonly explain?: (text: string) => string;
  readonly cancelled?: boolean;
}

/** A failure as the agent reads it: what failed, its code, and the next thing to do. */
export const toFailure = (
  thrown: unknown,
  { tool, explain = (text) => text, cancelled = false }: FailureSetting = {},
): Failure => {
  const error = cancelled ? new CoppiceError('cancelled', 'the call was cancelled') : toCoppiceError(thrown);
  const message = redact(error.message);
  const next = redact(explain(nextStep(error, tool)));
  const text = redact(`${error.code}: ${message}\nNext: ${next}${outputOf(error)}`);
  return {
    error,
    result: {
      isError: true,
      content: [{ type: 'text', text }],
      _meta: { 'coppice/error': { code: error.code, message, next } },
    },
  };
};
