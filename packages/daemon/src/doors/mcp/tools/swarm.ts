import {
  CoppiceError,
  environmentSchema,
  nameSchema,
  type Snapshot,
  snapshotRefSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import { textTokens } from '../answer-size.ts';
import { runCommand } from '../command-result.ts';
import {
  commandLine,
  environment,
  maxOutputBytes,
  repositoryPath,
  timeoutSecs,
  workdir,
  workspaceId,
} from '../fields.ts';
import { defineTool, outward, unbounded } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { growForks } from './fork.ts';
import { mergeOutput, mergeStrategy, mergeWorkspaces } from './merge.ts';

const taskInput = z.strictObject({
  name: nameSchema.describe('Unique among the tasks.'),
  command: commandLine,
  workdir,
  env: environment,
});

const contextQuery = z.strictObject({
  kind: z.enum(['search', 'read']).describe('Find words, or read a note.'),
  query: z.string().min(1).max(1024).describe('Path of a note (read), or words to find (search).'),
});

const taskResult = z.object({
  name: z.string(),
  workspace_id: z.string().nullable(),
  success: z.boolean(),
  exit_code: z.number().nullable(),
  stdout: z.string(),
  stderr: z.string(),
  timed_out: z.boolean(),
  error: z.string().optional(),
  elapsed_ms: z.number(),
});
type TaskResult = z.infer<typeof taskResult>;

const input = z.strictObject({
  golden_workspace: workspaceId.describe('Workspace that the snapshot is of.'),
  snapshot_name: snapshotRefSchema.default('golden').describe('Snapshot that the workers grow from.'),
  tasks: z.array(taskInput).min(1).max(20).describe('One worker for each.'),
  env_vars: environmentSchema.optional().describe('For every task.'),
  merge_strategy: mergeStrategy.optional(),
  merge_target: workspaceId.optional().describe('Where the commits of the tasks that succeeded go.'),
  merge_path: repositoryPath,
  max_parallel: z.int().min(1).max(20).default(4).describe('Workers at work at the same time.'),
  timeout_secs: timeoutSecs(600).describe('For each task.'),
  cleanup: z.boolean().default(true).describe('Destroy the workers at the end.'),
  allow_internet: z.boolean().optional().describe('For the workers; as in the golden workspace by default.'),
  vault_context: z
    .array(contextQuery)
    .max(20)
    .optional()
    .describe('Shared notes for each worker, in the file that $VAULT_CONTEXT names.'),
  shared_context: z
    .string()
    .max(1_048_576)
    .optional()
    .describe('Text for each worker, in the file that $SHARED_CONTEXT names.'),
  max_output_bytes: maxOutputBytes,
});
type SwarmInput = z.output<typeof input>;

const contextFiles = { shared: '/tmp/.shared-context', vault: '/tmp/.vault-context' } as const;

const restIsGone = 'the rest went with the worker: raise max_output_bytes, or pass cleanup: false';

async function* single(text: string): AsyncIterable<Buffer> {
  yield Buffer.from(text);
}

/** Runs tasks in forks of one snapshot, a few at a time. */
class Swarm {
  readonly #context: ToolContext;
  readonly #input: SwarmInput;
  readonly #golden: { readonly id: string; readonly name: string };
  readonly workers = new Map<string, { id: string; name: string }>();

  constructor(context: ToolContext, given: SwarmInput, golden: { id: string; name: string }) {
    this.#context = context;
    this.#input = given;
    this.#golden = golden;
  }

  async run(snapshot: Snapshot): Promise<TaskResult[]> {
    const { tasks, max_parallel: parallel } = this.#input;
    const vaultText = await this.#vaultText();
    const results: TaskResult[] = new Array(tasks.length);
    let next = 0;
    let done = 0;
    const lane = async (): Promise<void> => {
      while (next < tasks.length) {
        this.#context.signal.throwIfAborted();
        const index = next;
        next += 1;
        results[index] = await this.#task(snapshot, tasks[index]!, vaultText);
        done += 1;
        this.#context.report(`${tasks[index]!.name} done`, done / tasks.length);
      }
    };
    const lanes = await Promise.allSettled(Array.from({ length: Math.min(parallel, tasks.length) }, lane));
    const failed = lanes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return results;
  }

  /** Workers never stay behind because something failed. */
  async cleanUp(): Promise<number> {
    const outcomes = await Promise.allSettled(
      [...this.workers.values()].map(({ id }) =>
        this.#context.call('destroySandbox', { params: { sandbox: id } }),
      ),
    );
    return outcomes.filter((outcome) => outcome.status === 'fulfilled').length;
  }

  async #task(
    snapshot: Snapshot,
    task: z.output<typeof taskInput>,
    vaultText: string | undefined,
  ): Promise<TaskResult> {
    const began = performance.now();
    const elapsed = () => Math.round(performance.now() - began);
    const failed = {
      name: task.name,
      workspace_id: null,
      success: false,
      exit_code: null,
      stdout: '',
      stderr: '',
      timed_out: false,
    };
    try {
      const worker = await this.#worker(snapshot, task.name);
      const env = await this.#prepare(worker.id, task.env, vaultText);
      const { result, timedOut } = await runCommand(this.#context, worker.id, {
        command: task.command,
        workdir: task.workdir,
        env,
        timeout_secs: this.#input.timeout_secs,
        max_output_bytes: this.#input.max_output_bytes,
        tokens: textTokens / this.#input.tasks.length,
        ...(this.#input.cleanup ? { rest: { workspace: this.#golden, otherwise: restIsGone } } : {}),
      });
      const { exit_code, stdout, stderr } = result;
      const success = exit_code === 0 && !timedOut;
      return {
        name: task.name,
        workspace_id: worker.id,
        success,
        exit_code,
        stdout,
        stderr,
        timed_out: timedOut,
        elapsed_ms: elapsed(),
      };
    } catch (error) {
      if (this.#context.signal.aborted || !(error instanceof CoppiceError)) throw error;
      const workspaceId = this.workers.get(task.name)?.id ?? null;
      return { ...failed, workspace_id: workspaceId, error: error.message, elapsed_ms: elapsed() };
    }
  }

  async #worker(snapshot: Snapshot, name: string): Promise<{ id: string; name: string }> {
    const { forks } = await growForks(this.#context, snapshot, { count: 1 });
    const worker = { id: forks[0]!.id, name: forks[0]!.name };
    this.workers.set(name, worker);
    const { allow_internet: allow } = this.#input;
    if (allow !== undefined)
      await this.#context.call('setNetwork', {
        params: { sandbox: worker.id },
        body: { allow_internet: allow },
      });
    return worker;
  }

  async #prepare(
    id: string,
    own: Record<string, string> | undefined,
    vaultText: string | undefined,
  ): Promise<Record<string, string>> {
    const params = { sandbox: id };
    const env: Record<string, string> = { ...this.#input.env_vars, ...own };
    const contexts = [
      ['SHARED_CONTEXT', contextFiles.shared, this.#input.shared_context],
      ['VAULT_CONTEXT', contextFiles.vault, vaultText],
    ] as const;
    for (const [name, path, text] of contexts) {
      if (text === undefined) continue;
      await this.#context.call('writeFile', { params, query: { path } }, { upload: single(text) });
      env[name] = path;
    }
    return env;
  }

  async #vaultText(): Promise<string | undefined> {
    const queries = this.#input.vault_context;
    if (queries === undefined) return undefined;
    const context = this.#context;
    const parts: string[] = [];
    for (const { kind, query } of queries) {
      if (kind === 'read')
        parts.push(`# ${query}\n${(await context.call('readNote', { query: { path: query } })).content}`);
      else {
        const { results } = await context.call('searchNotes', { query: { query, limit: 20 } });
        parts.push(
          `# search: ${query}\n${results.map((hit) => `${hit.path}:${hit.line_number}: ${hit.line}`).join('\n')}`,
        );
      }
    }
    return parts.join('\n\n');
  }
}

export const swarmRun = defineTool({
  name: 'swarm_run',
  title: 'Run tasks in forks',
  description:
    'Forks a worker for each task from one snapshot, runs the tasks (max_parallel at a time), optionally merges their commits into merge_target, and destroys the workers. Do not use it for one command (exec), nor for workers you want to talk to (workspace_batch_fork).',
  actions: [
    'forkSnapshot',
    'setNetwork',
    'exec',
    'writeFile',
    'readFile',
    'removeFile',
    'mergeCommits',
    'destroySandbox',
    'readNote',
    'searchNotes',
  ],
  annotations: outward(unbounded),
  input,
  output: z.object({
    swarm_id: z.string(),
    tasks: z.array(taskResult),
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
    const names = new Set(given.tasks.map((task) => task.name));
    if (names.size !== given.tasks.length)
      throw new CoppiceError('invalid_argument', 'two tasks have the same name');
    if ((given.merge_strategy === undefined) !== (given.merge_target === undefined))
      throw new CoppiceError(
        'invalid_argument',
        'merge_strategy and merge_target go together: give both or none',
      );
    const golden = context.ownSandbox(given.golden_workspace);
    const target = given.merge_target === undefined ? undefined : context.ownSandbox(given.merge_target);
    const snapshot = await context.usableSnapshot(given.snapshot_name, golden);
    const began = performance.now();
    const swarm = new Swarm(context, given, { id: golden.id, name: golden.name });
    let destroyed = 0;
    const finish = async () => {
      if (given.cleanup || context.signal.aborted) destroyed = await swarm.cleanUp();
    };
    try {
      const tasks = await context.during('running the tasks', () => swarm.run(snapshot));
      const succeeded = tasks.filter((task) => task.success);
      const merge =
        target === undefined
          ? undefined
          : await mergeWorkspaces(context, target.id, {
              from: succeeded.map((task) => swarm.workers.get(task.name)!.id),
              strategy: given.merge_strategy!,
              path: given.merge_path,
            });
      await finish();
      return {
        swarm_id: `swarm-${snapshot.id.slice(-6)}-${Date.now().toString(36)}`,
        tasks,
        summary: {
          total_tasks: tasks.length,
          succeeded: succeeded.length,
          failed: tasks.length - succeeded.length,
          total_elapsed_ms: Math.round(performance.now() - began),
          workers_destroyed: destroyed,
        },
        ...(merge === undefined ? {} : { merge }),
      };
    } catch (error) {
      await swarm.cleanUp();
      throw error;
    }
  },
});
