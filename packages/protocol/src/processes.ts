import { z } from 'zod';
import { environmentSchema } from './sandboxes.ts';

const userSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$/,
    'must be the name or id of a user, and of a group after a colon if you like',
  );
export const guestPathSchema = z
  .string()
  .min(1)
  .max(4096)
  .refine((path) => !path.includes('\0'), 'holds a NUL byte');

const processFields = {
  /** A shell command line (string), or a program with its arguments (array). */
  command: z.union([z.string().min(1).max(1_048_576), z.array(z.string().max(1_048_576)).min(1).max(4096)]),
  env: environmentSchema.optional(),
  cwd: guestPathSchema.optional(),
  user: userSchema.optional(),
};

export const execSchema = z.strictObject({
  ...processFields,
  timeout_ms: z.int().min(1).max(86_400_000).optional(),
  /** Text given to standard input; for binary use stdin_base64. */
  stdin: z.string().max(16_777_216).optional(),
  stdin_base64: z.base64().max(22_369_624).optional(),
  /** How much of each stream to keep; the answer says how much was cut. */
  max_output_bytes: z.int().min(0).max(67_108_864).default(1_048_576),
});
export type Exec = z.input<typeof execSchema>;

/** What a sandbox may have too little of. */
const ranOutSchema = z.enum(['memory', 'processes', 'disk']);
export type RanOut = z.infer<typeof ranOutSchema>;

export const exitSchema = z.object({
  exit_code: z.number().nullable(),
  signal: z.number().nullable(),
  timed_out: z.boolean(),
  /** Of a command that failed while its sandbox ran out of that; not there where it did not, or where nobody watched. */
  ran_out: ranOutSchema.optional(),
});
export type Exit = z.infer<typeof exitSchema>;

export const execResultSchema = exitSchema.extend({
  /** UTF-8; bytes that are not become U+FFFD, and `binary` says so. */
  stdout: z.string(),
  stderr: z.string(),
  binary: z.boolean(),
  stdout_base64: z.string().nullable(),
  stderr_base64: z.string().nullable(),
  stdout_cut_bytes: z.number(),
  stderr_cut_bytes: z.number(),
  duration_ms: z.number(),
});
export type ExecResult = z.infer<typeof execResultSchema>;

/** First message of a WebSocket exec; then binary messages are standard input. */
export const execStreamStartSchema = z.strictObject({
  type: z.literal('start'),
  ...processFields,
  timeout_ms: z.int().min(1).max(86_400_000).optional(),
});
export const execStreamControlSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('stdin_end') }),
  z.strictObject({ type: z.literal('signal'), signal: z.int().min(1).max(64) }),
]);
/** Text messages from the daemon; output comes as binary messages whose first byte is 1 (stdout) or 2 (stderr). */
export const execStreamEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('started'), pid: z.number() }),
  exitSchema.extend({ type: z.literal('exit') }),
  z.object({
    type: z.literal('error'),
    code: z.string(),
    message: z.string(),
    hint: z.string(),
    details: z.record(z.string(), z.unknown()).optional(),
  }),
]);

export const startJobSchema = z.strictObject({
  ...processFields,
  timeout_ms: z.int().min(1).max(604_800_000).optional(),
  /** The sandbox does not fall asleep while the job runs. */
  keep_awake: z.boolean().default(true),
});
export const jobSchema = z.object({
  id: z.number(),
  pid: z.number(),
  command: z.array(z.string()),
  started_at: z.string(),
  running: z.boolean(),
  exit: exitSchema.nullable(),
  log_bytes: z.number(),
  log_start: z.number(),
});
export type Job = z.infer<typeof jobSchema>;

export const jobLogQuery = z.strictObject({
  cursor: z.coerce.number().int().min(0).default(0),
  max_bytes: z.coerce.number().int().min(1).max(4_194_304).default(262_144),
  wait_ms: z.coerce.number().int().min(0).max(60_000).default(0),
});
export const jobLogSchema = z.object({
  entries: z.array(
    z.object({ stream: z.enum(['stdout', 'stderr']), text: z.string(), base64: z.string().nullable() }),
  ),
  cursor: z.number(),
  dropped_bytes: z.number(),
  running: z.boolean(),
  exit: exitSchema.nullable(),
});
export type JobLogBody = z.infer<typeof jobLogSchema>;
export const signalSchema = z.strictObject({ signal: z.int().min(1).max(64).default(15) });

const columns = z.int().min(1).max(1000);
export const openTerminalSchema = z.strictObject({
  ...processFields,
  command: processFields.command.optional(),
  cols: columns.default(80),
  rows: columns.default(24),
});
export const terminalSchema = z.object({
  id: z.number(),
  pid: z.number(),
  command: z.array(z.string()),
  cols: z.number(),
  rows: z.number(),
  running: z.boolean(),
  exit: exitSchema.nullable(),
});
export type Terminal = z.infer<typeof terminalSchema>;
export const resizeTerminalSchema = z.strictObject({ cols: columns, rows: columns });
export const attachTerminalQuery = z.strictObject({
  /**
   * `screen`: first the screen as it is, drawn by the daemon, with its colours and its cursor; then what follows, no further ahead
   * than the client acknowledges. `bytes`: the last 64 KiB that the terminal wrote, then what follows.
   */
  show: z.enum(['bytes', 'screen']).default('bytes'),
});
/** Text messages a client may send on an attached terminal; binary ones are what is typed. */
export const terminalControlSchema = z.discriminatedUnion('type', [
  /** So many bytes more have been shown; only where a screen was asked for. */
  z.strictObject({ type: z.literal('ack'), bytes: z.int().min(0).max(Number.MAX_SAFE_INTEGER) }),
  z.strictObject({ type: z.literal('resize'), cols: columns, rows: columns }),
  z.strictObject({ type: z.literal('signal'), signal: z.int().min(1).max(64) }),
]);
