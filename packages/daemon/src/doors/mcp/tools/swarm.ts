import {
  CoppiceError,
  environmentSchema,
  mostTasks,
  nameSchema,
  type SwarmEvent,
  type SwarmTask,
  snapshotRefSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import { textTokens } from '../answer-size.ts';
import { cutResult } from '../command-result.ts';
import {
  commandLine,
  environment,
  maxOutputBytes,
  repositoryPath,
  timeoutSecs,
  workdir,
  workspaceId,
} from '../fields.ts';
import { lastEvent } from '../last-event.ts';
import { defineTool, outward, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { mergeOutput, mergeStrategy, mergeView } from './merge.ts';

/** How much of each stream of a task is kept where the answer shows less. */
const keptBytes = 1_048_576;

const restIsGone = 'the rest went with the worker: raise max_output_bytes, or pass cleanup: false';

/** A task as agents know it, cut to its share of the answer. */
const taskView = async (
  context: ToolContext,
  { stdout, stderr, exit_code, ...task }: SwarmTask,
  cut: Parameters<typeof cutResult>[3],
) => {
  const shown = await cutResult(
    context,
    task.sandbox_id ?? '',
    {
      stdout,
      stderr,
      exit_code,
      signal: null,
      timed_out: task.timed_out,
      binary: false,
      stdout_base64: null,
      stderr_base64: null,
      stdout_cut_bytes: task.stdout_cut_bytes,
      stderr_cut_bytes: task.stderr_cut_bytes,
      duration_ms: task.duration_ms,
    },
    cut,
  );
  return {
    name: task.name,
    workspace_id: task.sandbox_id,
    success: task.success,
    exit_code,
    stdout: shown.stdout,
    stderr: shown.stderr,
    timed_out: task.timed_out,
    ...(task.error === null ? {} : { error: task.error }),
    elapsed_ms: task.duration_ms,
  };
};

export const swarmRun = defineTool({
  name: 'swarm_run',
  title: 'Run tasks in forks',
  description: `Forks a worker for each task (at most ${mostTasks}) from one snapshot, runs the tasks (max_parallel at a time), optionally merges their commits into merge_target, and destroys the workers. Do not use it for one command (exec), nor for workers you want to talk to (workspace_batch_fork).`,
  actions: ['runSwarm', 'writeFile'],
  annotations: outward(unbounded),
  input: z.strictObject({
    golden_workspace: workspaceId.describe('Workspace that the snapshot is of.'),
    snapshot_name: snapshotRefSchema.default('golden').describe('Snapshot that the workers grow from.'),
    tasks: z
      .array(
        z.strictObject({
          name: nameSchema.describe('Unique among the tasks.'),
          command: commandLine,
          workdir,
          env: environment,
        }),
      )
      .min(1)
      .max(mostTasks)
      .describe('One worker for each.'),
    env_vars: environmentSchema.optional().describe('For every task.'),
    merge_strategy: mergeStrategy.optional(),
    merge_target: workspaceId.optional().describe('Where the commits of the tasks that succeeded go.'),
    merge_path: repositoryPath,
    max_parallel: z.int().min(1).max(mostTasks).default(4).describe('Workers at work at the same time.'),
    timeout_secs: timeoutSecs(600).describe('For each task.'),
    cleanup: z.boolean().default(true).describe('Destroy the workers at the end.'),
    allow_internet: z
      .boolean()
      .optional()
      .describe('For the workers; as in the golden workspace by default.'),
    vault_context: z
      .array(
        z.strictObject({
          kind: z.enum(['search', 'read']).describe('Find words, or read a note.'),
          query: z.string().min(1).max(1024).describe('Path of a note (read), or words to find (search).'),
        }),
      )
      .max(20)
      .optional()
      .describe('Shared notes for each worker, in the file that $VAULT_CONTEXT names.'),
    shared_context: z
      .string()
      .max(1_048_576)
      .optional()
      .describe('Text for each worker, in the file that $SHARED_CONTEXT names.'),
    max_output_bytes: maxOutputBytes,
  }),
  output: z.object({
    swarm_id: z.string(),
    tasks: z.array(
      z.object({
        name: z.string(),
        workspace_id: z.string().nullable(),
        success: z.boolean(),
        exit_code: z.number().nullable(),
        stdout: z.string(),
        stderr: z.string(),
        timed_out: z.boolean(),
        error: z.string().optional(),
        elapsed_ms: z.number(),
      }),
    ),
    summary: z.object({
      total_tasks: z.number(),
      succeeded: z.number(),
      failed: z.number(),
      total_elapsed_ms: z.number(),
      workers_destroyed: z.number(),
    }),
    merge: mergeOutput.optional(),
  }),
  next: {
    not_found:
      'Call snapshot_list on the golden workspace; workspace_prepare makes one with a snapshot “golden”.',
  },
  run: async (context, given) => {
    if ((given.merge_strategy === undefined) !== (given.merge_target === undefined))
      throw new CoppiceError(
        'invalid_argument',
        'merge_strategy and merge_target go together: give both or none',
      );
    const golden = await context.ownSandbox(given.golden_workspace);
    const target =
      given.merge_target === undefined ? undefined : await context.ownSandbox(given.merge_target);
    const snapshot = await context.usableSnapshot(given.snapshot_name, golden);
    for (const { env } of given.tasks) context.secrets.addEnvironment(env ?? {});
    context.secrets.addEnvironment(given.env_vars ?? {});
    const body = {
      snapshot: snapshot.id,
      tasks: given.tasks.map(({ workdir: cwd, ...task }) => ({ ...task, cwd })),
      env: given.env_vars,
      merge_into: target?.id,
      merge_strategy: given.merge_strategy,
      merge_path: given.merge_path,
      parallel: given.max_parallel,
      timeout_ms: Math.ceil(given.timeout_secs * 1000),
      keep_workers: !given.cleanup,
      allow_internet: given.allow_internet,
      notes: given.vault_context,
      shared_context: given.shared_context,
      max_output_bytes: Math.max(keptBytes, given.max_output_bytes ?? 0),
    };
    const onEvent = (event: Exclude<SwarmEvent, { type: 'swarm' }>) =>
      event.type === 'progress'
        ? context.report(event.message)
        : context.report(`${event.task.name} done`, event.done / event.total);
    const { swarm } = await context.during('running the tasks', () =>
      lastEvent<SwarmEvent, 'swarm'>(
        context.call('runSwarm', { params: { sandbox: golden.id }, body }),
        'swarm',
        onEvent,
      ),
    );
    const cut = {
      max_output_bytes: given.max_output_bytes,
      tokens: textTokens / swarm.tasks.length,
      ...(given.cleanup ? { rest: { workspace: golden, otherwise: restIsGone } } : {}),
    };
    const tasks = await Promise.all(swarm.tasks.map((task) => taskView(context, task, cut)));
    const succeeded = swarm.tasks.filter((task) => task.success).length;
    return {
      swarm_id: swarm.swarm_id,
      tasks,
      summary: {
        total_tasks: swarm.tasks.length,
        succeeded,
        failed: swarm.tasks.length - succeeded,
        total_elapsed_ms: swarm.duration_ms,
        workers_destroyed: swarm.workers_destroyed,
      },
      ...(swarm.merge === null ? {} : { merge: mergeView(swarm.merge) }),
    };
  },
});
