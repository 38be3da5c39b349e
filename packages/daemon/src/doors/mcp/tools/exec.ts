import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, environmentPatchSchema, type JobLogBody } from '@coppice/protocol';
import { z } from 'zod';
import { inShell } from '../../../inside/shell-command.ts';
import { headAndTail, shareTokens, textTokens } from '../answer-size.ts';
import { commandResultSchema, exitCodeOf, runCommand } from '../command-result.ts';
import { commandLine, environment, maxOutputBytes, timeoutSecs, workdir, workspaceId } from '../fields.ts';
import { defineTool, outward, readOnly, replacing, settling, type Tool, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';

const exec = defineTool({
  name: 'exec',
  title: 'Run a command',
  description:
    'Runs a shell command and answers with exit_code, stdout and stderr when it ends. A command that fails is no tool error: look at exit_code. Do not use it for what takes longer than timeout_secs or never ends (exec_background).',
  actions: ['exec', 'writeFile'],
  annotations: outward(unbounded),
  input: z.strictObject({
    workspace_id: workspaceId,
    command: commandLine,
    timeout_secs: timeoutSecs(120),
    workdir,
    env: environment,
    max_output_bytes: maxOutputBytes,
  }),
  output: commandResultSchema,
  next: { timeout: 'For long commands use exec_background, then exec_poll; or raise timeout_secs.' },
  run: async (context, { workspace_id: ref, ...request }) => {
    const { id, name } = await context.ownSandbox(ref);
    const { result, timedOut } = await context.during('running', () => runCommand(context, id, request));
    if (!timedOut) return result;
    throw new CoppiceError('timeout', `exec timed out after ${request.timeout_secs} s in workspace ${name}`, {
      details: { stdout: result.stdout, stderr: result.stderr },
    });
  },
});

const jobId = z.int().min(0).describe('From exec_background.');

const background = defineTool({
  name: 'exec_background',
  title: 'Start a background job',
  description:
    'Starts a command that goes on while you do other work: builds, test suites, servers. Follow it with exec_poll. Do not use it for commands that end within seconds (exec). Jobs end with snapshot_restore.',
  actions: ['startJob'],
  annotations: outward(unbounded),
  input: z.strictObject({ workspace_id: workspaceId, command: commandLine, workdir, env: environment }),
  output: z.object({ job_id: z.number(), status: z.literal('started'), pid: z.number() }),
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    context.secrets.addEnvironment(input.env ?? {});
    const job = await inShell(input.command, input.workdir, (words) =>
      context.call('startJob', { params: { sandbox: id }, body: { ...words, env: input.env } }),
    );
    return { job_id: job.id, status: 'started' as const, pid: job.pid };
  },
});

/** One wait in the guest; short enough that a cancelled call ends soon. */
const waitStepMs = 2_000;
/** A job that writes without pause is looked at so often while its end is waited for. */
const restMs = 50;

/** Waits for output past the cursor, or for the end of the job where the agent follows none. */
const pollLog = async (
  context: ToolContext,
  id: string,
  input: { job_id: number; cursor?: number | undefined; wait_secs: number },
  maxBytes: number,
): Promise<JobLogBody> => {
  const deadlineMs = performance.now() + input.wait_secs * 1000;
  const params = { sandbox: id, job: input.job_id };
  const read = (cursor: number, maxBytes: number, waitMs: number) =>
    context.call('readJob', { params, query: { cursor, max_bytes: maxBytes, wait_ms: waitMs } });
  const leftMs = () => Math.max(0, Math.min(waitStepMs, Math.ceil(deadlineMs - performance.now())));
  if (input.cursor === undefined) {
    while (leftMs() > 0) {
      context.signal.throwIfAborted();
      // From where nothing was written yet, so that the output itself is not carried about.
      const log = await read(Number.MAX_SAFE_INTEGER, 1, leftMs());
      if (!log.running) break;
      await sleep(Math.min(restMs, leftMs()));
    }
    return read(0, maxBytes, 0);
  }
  for (;;) {
    context.signal.throwIfAborted();
    const waitMs = leftMs();
    const log = await read(input.cursor, maxBytes, waitMs);
    if (log.entries.length > 0 || !log.running || waitMs === 0) return log;
  }
};

const textOf = (log: JobLogBody, stream: 'stdout' | 'stderr'): string =>
  log.entries.flatMap((entry) => (entry.stream === stream ? [entry.text] : [])).join('');

/** As much as one read of a log may bring. */
const mostLogBytes = 4_194_304;

/** The start and the end of what a job wrote, unless the agent says how much of it to show. */
const shownLog = (
  log: JobLogBody,
  input: { cursor?: number | undefined; max_output_bytes?: number | undefined },
): { stdout: string; stderr: string } => {
  const [stdout, stderr] = [textOf(log, 'stdout'), textOf(log, 'stderr')];
  if (input.max_output_bytes !== undefined) return { stdout, stderr };
  const shares = shareTokens(stdout, stderr, textTokens);
  const note = (leftOut: number) =>
    `[TRUNCATED: ${leftOut} bytes are left out here; read all of it in parts with cursor=${input.cursor ?? 0} max_output_bytes=20000]`;
  return {
    stdout: headAndTail(stdout, shares[0], note).text,
    stderr: headAndTail(stderr, shares[1], note).text,
  };
};

const poll = defineTool({
  name: 'exec_poll',
  title: 'Follow a background job',
  description:
    'Output and state of a job. Without cursor: all output, and wait_secs waits for the end. With the cursor of the last answer: what is new, and wait_secs waits for more. Do not call it in a tight loop: give wait_secs.',
  actions: ['readJob', 'getJob'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    job_id: jobId,
    cursor: z.int().min(0).optional().describe('From the last answer.'),
    wait_secs: z.number().min(0).max(300).default(0).describe('Seconds to wait at most.'),
    max_output_bytes: maxOutputBytes,
  }),
  output: z.object({
    job_id: z.number(),
    running: z.boolean(),
    exit_code: z.number().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    cursor: z.number(),
    dropped_bytes: z
      .number()
      .describe('Output that was lost before the cursor: the log keeps the newest part only.'),
    note: z.string().optional(),
  }),
  next: {
    not_found:
      'Job numbers are given by exec_background; a job does not survive workspace_stop or snapshot_restore.',
  },
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const log = await context.during(`waiting for job ${input.job_id}`, () =>
      pollLog(context, id, input, Math.min(input.max_output_bytes ?? mostLogBytes, mostLogBytes)),
    );
    const job = await context.call('getJob', { params: { sandbox: id, job: input.job_id } });
    const more = job.log_bytes > log.cursor;
    return {
      job_id: input.job_id,
      running: log.running,
      exit_code: log.exit === null ? null : exitCodeOf(log.exit),
      ...shownLog(log, input),
      cursor: log.cursor,
      dropped_bytes: log.dropped_bytes,
      ...(more ? { note: `[MORE: call exec_poll with cursor=${log.cursor} for the rest]` } : {}),
    };
  },
});

const kill = defineTool({
  name: 'exec_kill',
  title: 'End a background job',
  description:
    'Sends a signal to a job and all processes it started; 9 (kill) by default, 15 asks it to end. Do not use it for a command that exec runs: that ends with its timeout or when the call is cancelled.',
  actions: ['getJob', 'signalJob'],
  annotations: replacing,
  input: z.strictObject({
    workspace_id: workspaceId,
    job_id: jobId,
    signal: z.int().min(1).max(64).default(9).describe('Number of the signal.'),
  }),
  output: z.object({ job_id: z.number(), signal: z.number(), status: z.enum(['signalled', 'ended']) }),
  next: { not_found: 'Job numbers are given by exec_background.' },
  run: async (context, { workspace_id: ref, job_id: id, signal }) => {
    const params = { sandbox: await context.own(ref), job: id };
    const job = await context.call('getJob', { params });
    if (!job.running) return { job_id: id, signal, status: 'ended' as const };
    await context.call('signalJob', { params, body: { signal } });
    return { job_id: id, signal, status: 'signalled' as const };
  },
});

const setEnv = defineTool({
  name: 'set_env',
  title: 'Set environment variables',
  description:
    'Variables for every later command of the workspace and of its forks; values are never shown again. Those of names that end in TOKEN, SECRET, PASSWORD or API_KEY are masked in answers. Use it for tokens: GIT_TOKEN (or GIT_USERNAME and GIT_PASSWORD) is what the git tools log in with. Do not use it for one command (exec has env).',
  actions: ['updateSandbox'],
  annotations: settling,
  input: z.strictObject({
    workspace_id: workspaceId,
    vars: environmentPatchSchema.describe('Name to value; null removes the variable.'),
  }),
  output: z.object({ count: z.number(), status: z.literal('set'), names: z.array(z.string()) }),
  run: async (context, { workspace_id: ref, vars }) => {
    const id = await context.own(ref);
    context.secrets.addEnvironment(vars);
    const updated = await context.call('updateSandbox', { params: { sandbox: id }, body: { env: vars } });
    return { count: Object.keys(vars).length, status: 'set' as const, names: updated.env_names };
  },
});

const parallelResult = z.object({
  workspace_id: z.string(),
  workspace_name: z.string(),
  exit_code: z.number().nullable(),
  stdout: z.string(),
  stderr: z.string(),
  timed_out: z.boolean(),
  error: z.string().optional(),
});

const parallel = defineTool({
  name: 'exec_parallel',
  title: 'Run commands in several workspaces at once',
  description:
    'Runs one command in each of the workspaces, or the n-th command in the n-th, all at the same time. A workspace that fails does not stop the others. Do not use it for several commands in one workspace (exec, exec_background).',
  actions: ['exec', 'writeFile'],
  annotations: outward(unbounded),
  input: z.strictObject({
    workspace_ids: z.array(workspaceId).min(1).max(20).describe('Ids or names of the workspaces.'),
    commands: z
      .union([commandLine, z.array(commandLine).min(1).max(20)])
      .describe('One for all, or one for each.'),
    timeout_secs: timeoutSecs(300),
    workdir,
    env: environment,
    max_output_bytes: maxOutputBytes,
  }),
  output: z.object({
    results: z.array(parallelResult),
    summary: z.object({
      total: z.number(),
      succeeded: z.number(),
      failed: z.number(),
      timed_out: z.number(),
      elapsed_ms: z.number(),
    }),
  }),
  run: async (context, { workspace_ids: refs, commands, ...options }) => {
    if (Array.isArray(commands) && commands.length !== refs.length)
      throw new CoppiceError(
        'invalid_argument',
        `there are ${refs.length} workspaces and ${commands.length} commands`,
        {
          hint: 'Give one command for all, or as many as workspaces.',
        },
      );
    const sandboxes = await Promise.all(refs.map((ref) => context.ownSandbox(ref)));
    const began = performance.now();
    let done = 0;
    const results = await Promise.all(
      sandboxes.map(async (sandbox, index) => {
        const command = Array.isArray(commands) ? commands[index]! : commands;
        const result = await runOne(context, sandbox, {
          ...options,
          command,
          tokens: textTokens / sandboxes.length,
        });
        done += 1;
        context.report(`${sandbox.name} done`, done / sandboxes.length);
        return result;
      }),
    );
    const succeeded = results.filter((result) => result.exit_code === 0 && !result.timed_out).length;
    const timedOut = results.filter((result) => result.timed_out).length;
    return {
      results,
      summary: {
        total: results.length,
        succeeded,
        failed: results.length - succeeded - timedOut,
        timed_out: timedOut,
        elapsed_ms: Math.round(performance.now() - began),
      },
    };
  },
});

const runOne = async (
  context: ToolContext,
  sandbox: { id: string; name: string },
  request: Parameters<typeof runCommand>[2],
): Promise<z.infer<typeof parallelResult>> => {
  const head = { workspace_id: sandbox.id, workspace_name: sandbox.name };
  try {
    const { result, timedOut } = await runCommand(context, sandbox.id, request);
    const { exit_code, stdout, stderr } = result;
    return { ...head, exit_code, stdout, stderr, timed_out: timedOut };
  } catch (error) {
    if (context.signal.aborted || !(error instanceof CoppiceError)) throw error;
    return { ...head, exit_code: null, stdout: '', stderr: '', timed_out: false, error: error.message };
  }
};

export const execTools: readonly Tool[] = [exec, background, poll, kill, setEnv, parallel];
