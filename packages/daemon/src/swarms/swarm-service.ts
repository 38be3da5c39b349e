import { randomBytes } from 'node:crypto';
import {
  CoppiceError,
  execSchema,
  forkSnapshotSchema,
  mergeCommitsSchema,
  mostTasks,
  networkPatchSchema,
  type runSwarmSchema,
  type Sandbox,
  type Snapshot,
  type Swarm,
  type SwarmTask,
  searchNotesQuery,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { GitService } from '../git/git-service.ts';
import { inShell } from '../inside/shell-command.ts';
import { Secrets } from '../redaction/secrets.ts';
import type { Services, SwarmOptions } from '../services.ts';
import { ownedBy, type Sessions } from '../sessions/sessions.ts';
import { once } from '../text/once.ts';

type SwarmInput = z.output<typeof runSwarmSchema>;
type TaskInput = SwarmInput['tasks'][number];

export interface SwarmParts {
  readonly sandboxes: Pick<Services['sandboxes'], 'peek' | 'environment' | 'destroy'>;
  readonly snapshots: Pick<Services['snapshots'], 'get' | 'forkSnapshot'>;
  readonly network: Pick<Services['network'], 'patch'>;
  readonly exec: Services['exec'];
  readonly files: Services['files'];
  readonly notes: Services['notes'];
  readonly git: GitService;
  readonly sessions: Sessions;
}

const contextFiles = { shared: '/tmp/.shared-context', notes: '/tmp/.vault-context' } as const;

/** Runs tasks in forks of one snapshot. */
export class SwarmService {
  readonly #parts: SwarmParts;

  constructor(parts: SwarmParts) {
    this.#parts = parts;
  }

  async run(ref: string, input: SwarmInput, options: SwarmOptions = {}): Promise<Swarm> {
    const { sandboxes, snapshots, sessions } = this.#parts;
    const golden = await sandboxes.peek(ref);
    const target = input.merge_into === undefined ? undefined : await sandboxes.peek(input.merge_into);
    const snapshot = await snapshots.get(input.snapshot, golden.id);
    const work = (owner?: string) =>
      new RunningSwarm(this.#parts, { input, target, snapshot, owner }, options).run();
    const { session } = options;
    if (session === undefined) return work();
    const count = input.tasks.length;
    return input.keep_workers
      ? sessions.withRoom(session, count, () => work(session))
      : sessions.withWorkers(session, count, mostTasks, work);
  }
}

interface SwarmPlan {
  readonly input: SwarmInput;
  readonly target: Sandbox | undefined;
  readonly snapshot: Snapshot;
  /** The session that owns the workers. */
  readonly owner: string | undefined;
}

class RunningSwarm {
  readonly #parts: SwarmParts;
  readonly #plan: SwarmPlan;
  readonly #options: SwarmOptions;
  readonly #began = performance.now();
  /** By the name of the task. */
  readonly #workers = new Map<string, string>();
  /** No answer has one of these. */
  readonly #secrets = new Secrets();

  constructor(parts: SwarmParts, plan: SwarmPlan, options: SwarmOptions) {
    this.#parts = parts;
    this.#plan = plan;
    this.#options = options;
  }

  async run(): Promise<Swarm> {
    const { input, target, snapshot } = this.#plan;
    try {
      this.#options.progress?.({ message: 'running the tasks' });
      const tasks = await this.#tasks(await this.#notesText());
      const merge = target === undefined ? null : await this.#merge(target, tasks);
      const destroyed = input.keep_workers ? 0 : await this.#destroyWorkers();
      return {
        swarm_id: `swarm-${snapshot.id.slice(-6)}-${Date.now().toString(36)}`,
        tasks,
        workers_destroyed: destroyed,
        duration_ms: Math.round(performance.now() - this.#began),
        merge,
      };
    } catch (error) {
      // No worker stays behind when something fails, even where workers are kept.
      await this.#destroyWorkers();
      throw error;
    }
  }

  async #tasks(notesText: string | undefined): Promise<SwarmTask[]> {
    const { tasks, parallel } = this.#plan.input;
    const results: SwarmTask[] = new Array(tasks.length);
    let next = 0;
    let done = 0;
    const lane = async (): Promise<void> => {
      while (next < tasks.length) {
        this.#options.signal?.throwIfAborted();
        const index = next;
        next += 1;
        const task = await this.#task(tasks[index]!, notesText);
        results[index] = task;
        done += 1;
        this.#options.onTask?.(task, done, tasks.length);
      }
    };
    const lanes = await Promise.allSettled(Array.from({ length: Math.min(parallel, tasks.length) }, lane));
    const failed = lanes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return results;
  }

  async #task(task: TaskInput, notesText: string | undefined): Promise<SwarmTask> {
    const began = performance.now();
    const durationMs = () => Math.round(performance.now() - began);
    try {
      const id = await this.#worker(task.name);
      return { ...(await this.#runIn(id, task, notesText)), duration_ms: durationMs() };
    } catch (error) {
      if (this.#options.signal?.aborted || !(error instanceof CoppiceError)) throw error;
      return {
        name: task.name,
        sandbox_id: this.#workers.get(task.name) ?? null,
        success: false,
        exit_code: null,
        timed_out: false,
        stdout: '',
        stderr: '',
        stdout_cut_bytes: 0,
        stderr_cut_bytes: 0,
        error: this.#secrets.redact(error.message),
        duration_ms: durationMs(),
      };
    }
  }

  async #worker(task: string): Promise<string> {
    const { snapshot, owner, input } = this.#plan;
    const { signal, by, owner: payer } = this.#options;
    const fork = forkSnapshotSchema.parse({
      // A number counted up from the names there are could be given twice: others fork at the same time.
      name: `${snapshot.sandbox_name.slice(0, 44)}-fork-${randomBytes(4).toString('hex')}`,
      ...(owner === undefined ? {} : { labels: ownedBy(owner) }),
    });
    const call = { by, owner: payer, ...(signal === undefined ? {} : { signal }) };
    const { forks } = await this.#parts.snapshots.forkSnapshot(snapshot.id, fork, call);
    const { id } = forks[0]!;
    this.#workers.set(task, id);
    if (input.allow_internet !== undefined)
      await this.#parts.network.patch(id, networkPatchSchema.parse({ allow_internet: input.allow_internet }));
    return id;
  }

  async #runIn(
    id: string,
    task: TaskInput,
    notesText: string | undefined,
  ): Promise<Omit<SwarmTask, 'duration_ms'>> {
    const { exec, sandboxes } = this.#parts;
    const { input } = this.#plan;
    const env: Record<string, string> = { ...input.env, ...task.env };
    this.#secrets.addEnvironment(env);
    this.#secrets.addEnvironment(await sandboxes.environment(id));
    await this.#giveContext(id, env, notesText);
    const command = (words: { command: string[]; cwd: string | undefined }) =>
      execSchema.parse({
        ...words,
        env,
        timeout_ms: input.timeout_ms,
        max_output_bytes: input.max_output_bytes,
      });
    const done = this.#secrets.redactAll(
      await inShell(task.command, task.cwd, (words) => exec.run(id, command(words), this.#options.signal)),
    );
    const exitCode = done.exit_code ?? 128 + (done.signal ?? 0);
    return {
      name: task.name,
      sandbox_id: id,
      success: exitCode === 0 && !done.timed_out,
      exit_code: exitCode,
      timed_out: done.timed_out,
      stdout: done.stdout,
      stderr: done.stderr,
      stdout_cut_bytes: done.stdout_cut_bytes,
      stderr_cut_bytes: done.stderr_cut_bytes,
      error: null,
    };
  }

  async #giveContext(id: string, env: Record<string, string>, notesText: string | undefined): Promise<void> {
    const contexts = [
      ['SHARED_CONTEXT', contextFiles.shared, this.#plan.input.shared_context],
      ['VAULT_CONTEXT', contextFiles.notes, notesText],
    ] as const;
    for (const [name, path, text] of contexts) {
      if (text === undefined) continue;
      await this.#parts.files.write(id, { path, parents: false }, once(Buffer.from(text)));
      env[name] = path;
    }
  }

  async #notesText(): Promise<string | undefined> {
    const queries = this.#plan.input.notes;
    if (queries === undefined) return undefined;
    const parts: string[] = [];
    for (const { kind, query } of queries) {
      if (kind === 'read') {
        parts.push(`# ${query}\n${(await this.#parts.notes.note(query, 'markdown')).content}`);
        continue;
      }
      const { regex, ...search } = searchNotesQuery.parse({ query });
      const { results } = await this.#parts.notes.search({ ...search, isRegex: regex });
      const lines = results.map((hit) => `${hit.path}:${hit.line_number}: ${hit.line}`);
      parts.push(`# search: ${query}\n${lines.join('\n')}`);
    }
    return parts.join('\n\n');
  }

  async #merge(target: Sandbox, tasks: readonly SwarmTask[]): Promise<Swarm['merge']> {
    const { merge_strategy: strategy, merge_path: path } = this.#plan.input;
    const from = tasks.flatMap((task) => (task.success ? [task.sandbox_id!] : []));
    if (from.length === 0) return { success: true, strategy, commits: 0, sources: [], conflicts: [] };
    return this.#parts.git.merge(
      target.id,
      mergeCommitsSchema.parse({ from, strategy, path }),
      this.#options,
    );
  }

  async #destroyWorkers(): Promise<number> {
    const outcomes = await Promise.allSettled(
      [...this.#workers.values()].map((id) => this.#parts.sandboxes.destroy(id)),
    );
    return outcomes.filter(({ status }) => status === 'fulfilled').length;
  }
}
