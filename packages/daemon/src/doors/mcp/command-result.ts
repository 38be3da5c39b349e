import { CoppiceError, type ExecResult, exitSchema, type RanOut } from '@coppice/protocol';
import { z } from 'zod';
import { unfinishedTail } from '../../inside/output-text.ts';
import { inShell } from '../../inside/shell-command.ts';
import { startWithin } from '../../text/estimate-tokens.ts';
import { bytesPerToken, headAndTail, shareTokens, textTokens } from './answer-size.ts';
import type { ToolContext } from './tool-context.ts';

/** As much as is kept to be read later where the answer has only the first part of it. */
const keptBytes = 16 * 1024 * 1024;
/** Where the whole output of a cut answer is, inside the workspace. */
const spoolDirectory = '/tmp/coppice-output';

export interface CommandRequest {
  readonly command: string;
  readonly timeout_secs: number;
  readonly workdir?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Of each stream; what an answer may cost at most, where it is left out. */
  readonly max_output_bytes?: number | undefined;
  /** What both streams may cost together, where no number of bytes is asked for. */
  readonly tokens?: number;
  /** Where what is cut off goes, for commands whose own workspace does not outlive the answer. */
  readonly rest?: RestPlace;
}

interface RestPlace {
  readonly workspace?: { readonly id: string; readonly name: string };
  /** Said at the cut where it could not be kept. */
  readonly otherwise: string;
}

export const commandResultSchema = z.object({
  exit_code: z.number().describe('128 + n when signal n ended it, as in a shell.'),
  stdout: z.string(),
  stderr: z.string(),
  stdout_base64: z.string().optional().describe('The bytes, where stdout is not text.'),
  stderr_base64: z.string().optional().describe('The bytes, where stderr is not text.'),
  truncated: z.boolean(),
  stdout_file: z
    .string()
    .optional()
    .describe('Inside the workspace: all of stdout, where the answer is cut.'),
  stderr_file: z
    .string()
    .optional()
    .describe('Inside the workspace: all of stderr, where the answer is cut.'),
  duration_ms: z.number(),
  ran_out: exitSchema.shape.ran_out.describe(
    'What the workspace had too little of, where that made the command fail.',
  ),
  note: z.string().optional(),
});
type CommandResult = z.infer<typeof commandResultSchema>;

const ranOutNotes: Readonly<Record<RanOut, string>> = {
  memory:
    'The workspace ran out of memory and a process was killed. Use less at once, or work in a workspace that is created with more memory_mb.',
  processes: 'The workspace has as many processes as it may have. End some, or start fewer at once.',
  disk: 'The disk of the workspace is full. Remove what is not needed, or work in a workspace that is created with more disk_gb.',
};

export const exitCodeOf = (exit: { exit_code: number | null; signal: number | null }): number =>
  exit.exit_code ?? 128 + (exit.signal ?? 0);

export interface CommandOutcome {
  readonly result: CommandResult;
  readonly timedOut: boolean;
}

const run = (context: ToolContext, id: string, request: CommandRequest): Promise<ExecResult> =>
  inShell(request.command, request.workdir, (words) =>
    context.call('exec', {
      params: { sandbox: id },
      body: {
        ...words,
        env: request.env === undefined ? undefined : { ...request.env },
        timeout_ms: Math.ceil(request.timeout_secs * 1000),
        max_output_bytes: Math.max(keptBytes, request.max_output_bytes ?? 0),
      },
    }),
  );

/** Runs a command line as an agent asked for it, and cuts what is too much for an answer. */
export const runCommand = async (
  context: ToolContext,
  id: string,
  request: CommandRequest,
): Promise<CommandOutcome> => {
  context.secrets.addEnvironment(request.env ?? {});
  // Before it is cut, and before the rest goes into a file that a snapshot would hold.
  const done = context.secrets.redactAll(await run(context, id, request));
  return { timedOut: done.timed_out, result: await cutResult(context, id, done, request) };
};

/** What an answer shows of a command that has ended; the rest goes into a file. */
export const cutResult = async (
  context: ToolContext,
  id: string,
  done: ExecResult,
  request: Pick<CommandRequest, 'max_output_bytes' | 'tokens' | 'rest'>,
): Promise<CommandResult> => {
  const spool = new Spool(context, id, request);
  const shares = shareTokens(done.stdout, done.stderr, request.tokens ?? textTokens);
  const stdout = await spool.cut(
    { name: 'stdout', text: done.stdout, base64: done.stdout_base64, lostBytes: done.stdout_cut_bytes },
    shares[0],
  );
  const stderr = await spool.cut(
    { name: 'stderr', text: done.stderr, base64: done.stderr_base64, lostBytes: done.stderr_cut_bytes },
    shares[1],
  );
  return {
    exit_code: exitCodeOf(done),
    stdout: stdout.text,
    stderr: stderr.text,
    ...(stdout.base64 === undefined ? {} : { stdout_base64: stdout.base64 }),
    ...(stderr.base64 === undefined ? {} : { stderr_base64: stderr.base64 }),
    truncated: stdout.cut || stderr.cut,
    ...(stdout.file === undefined ? {} : { stdout_file: stdout.file }),
    ...(stderr.file === undefined ? {} : { stderr_file: stderr.file }),
    duration_ms: done.duration_ms,
    ...(done.ran_out === undefined ? {} : { ran_out: done.ran_out, note: ranOutNotes[done.ran_out] }),
  };
};

interface Output {
  readonly name: 'stdout' | 'stderr';
  readonly text: string;
  /** Where it is no text. */
  readonly base64: string | null;
  readonly lostBytes: number;
}

interface CutOutput {
  readonly text: string;
  readonly base64: string | undefined;
  readonly cut: boolean;
  readonly file?: string;
}

/** Keeps what does not fit into an answer in a file of the workspace, and says so at the cut. */
class Spool {
  readonly #context: ToolContext;
  readonly #id: string;
  readonly #limitBytes: number | undefined;
  readonly #rest: RestPlace | undefined;
  readonly #stamp = `${Date.now().toString(36)}-${Math.floor(Math.random() * 36 ** 4).toString(36)}`;

  constructor(context: ToolContext, id: string, request: Pick<CommandRequest, 'max_output_bytes' | 'rest'>) {
    this.#context = context;
    this.#id = id;
    this.#limitBytes = request.max_output_bytes;
    this.#rest = request.rest;
  }

  async cut(output: Output, tokens: number): Promise<CutOutput> {
    const { text, base64, lostBytes } = output;
    const bytes = base64 === null ? Buffer.from(text) : Buffer.from(base64, 'base64');
    const totalBytes = bytes.length + lostBytes;
    const limitBytes = this.#limitBytes ?? (base64 === null ? undefined : Math.floor(tokens * bytesPerToken));
    const fits =
      limitBytes === undefined ? startWithin(text, tokens).length === text.length : totalBytes <= limitBytes;
    if (fits && lostBytes === 0) return { text, base64: base64 ?? undefined, cut: false };
    const file = `${spoolDirectory}/${this.#stamp}.${output.name}`;
    const kept = await this.#keep(file, bytes);
    const shown = this.#show(output, bytes, tokens, (leftOut, headBytes) =>
      this.#note({ totalBytes, leftOut: leftOut + lostBytes, headBytes, lostBytes }, kept ? file : undefined),
    );
    return { ...shown, cut: true, ...(kept ? { file } : {}) };
  }

  /** The start and the end of text; of bytes the start. */
  #show(
    { text, base64 }: Output,
    bytes: Buffer,
    tokens: number,
    note: (leftOutBytes: number, headBytes: number) => string,
  ): { text: string; base64: string | undefined } {
    if (base64 !== null) {
      const head = bytes.subarray(0, this.#limitBytes ?? Math.floor(tokens * bytesPerToken));
      const end = note(bytes.length - head.length, head.length);
      return { text: `${head.toString('utf8')}\n${end}`, base64: head.toString('base64') };
    }
    if (this.#limitBytes === undefined)
      return { text: headAndTail(text, tokens, note).text, base64: undefined };
    const half = bytes.subarray(0, Math.ceil(this.#limitBytes / 2));
    const head = half.subarray(0, half.length - unfinishedTail(half));
    const tail = afterCut(
      bytes.subarray(Math.max(head.length, bytes.length - Math.floor(this.#limitBytes / 2))),
    );
    const between = note(bytes.length - head.length - tail.length, head.length);
    return { text: `${head.toString('utf8')}\n${between}\n${tail.toString('utf8')}`, base64: undefined };
  }

  #note(
    cut: { totalBytes: number; leftOut: number; headBytes: number; lostBytes: number },
    file: string | undefined,
  ): string {
    const other = this.#rest?.workspace;
    const kept = cut.lostBytes > 0 ? ` (its first ${cut.totalBytes - cut.lostBytes} bytes are there)` : '';
    const where =
      file === undefined
        ? (this.#rest?.otherwise ?? 'the rest could not be kept: raise max_output_bytes')
        : `read on with file_read ${other === undefined ? '' : `workspace_id=${other.name} `}path=${file} offset=${cut.headBytes}${kept}`;
    return `[TRUNCATED: ${cut.leftOut} of ${cut.totalBytes} bytes are left out here; ${where}]`;
  }

  /** A full disk, or a workspace that went away, must not cost the agent the part that it can have. */
  async #keep(path: string, bytes: Buffer): Promise<boolean> {
    const id = this.#rest === undefined ? this.#id : this.#rest.workspace?.id;
    if (id === undefined) return false;
    try {
      const upload = (async function* () {
        yield bytes;
      })();
      await this.#context.call('writeFile', { params: { sandbox: id }, query: { path } }, { upload });
      return true;
    } catch (error) {
      if (error instanceof CoppiceError && error.code !== 'internal') return false;
      throw error;
    }
  }
}

/** Bytes from the first whole character on. */
const afterCut = (bytes: Buffer): Buffer => {
  const start = bytes.subarray(0, 4).findIndex((byte) => (byte & 0xc0) !== 0x80);
  return start > 0 ? bytes.subarray(start) : bytes;
};
