import { z } from 'zod';
import { gitUrlSchema, mergedCommitsSchema, mergeStrategies } from './git.ts';
import { nameSchema } from './ids.ts';
import { imageRefSchema } from './images.ts';
import { workDirectory } from './mount-text.ts';
import { guestPathSchema } from './processes.ts';
import { projectRefSchema, sandboxRefSchema, snapshotRefSchema } from './references.ts';
import { environmentSchema, sandboxSchema } from './sandboxes.ts';
import { snapshotSchema } from './snapshots.ts';

/** The name of the snapshot that forks grow from unless a call says otherwise. */
export const goldenName = 'golden';
const commandLine = z.string().min(1).max(1_048_576);
const timeoutMs = z.int().min(100).max(86_400_000);

export const prepareSandboxSchema = z.strictObject({
  name: nameSchema,
  project: projectRefSchema.optional(),
  image: imageRefSchema.optional(),
  /** Cloned into /workspace before the commands run. */
  git_url: gitUrlSchema.optional(),
  /** Shell command lines, run in /workspace one after the other; the first that fails ends the preparation. */
  commands: z.array(commandLine).max(100).default([]),
  /** For each command, and for the clone. */
  timeout_ms: timeoutMs.default(300_000),
  /** During the preparation and after it. */
  allow_internet: z.boolean().default(false),
});

export const prepareEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('progress'), message: z.string() }),
  z.object({
    type: z.literal('prepared'),
    sandbox: sandboxSchema,
    snapshot: snapshotSchema,
    /** It was there already: nothing was run. */
    reused: z.boolean(),
  }),
]);
export type PrepareEvent = z.infer<typeof prepareEventSchema>;
export type PreparedSandbox = Omit<Extract<PrepareEvent, { type: 'prepared' }>, 'type'>;

const taskSchema = z.strictObject({
  name: nameSchema,
  /** A shell command line. */
  command: commandLine,
  cwd: guestPathSchema.optional(),
  env: environmentSchema.optional(),
});

export const mostTasks = 20;

export const runSwarmSchema = z.strictObject({
  /** The snapshot of the sandbox that the workers are forked from. */
  snapshot: snapshotRefSchema.default(goldenName),
  tasks: z
    .array(taskSchema)
    .min(1)
    .max(mostTasks)
    .refine(
      (tasks) => new Set(tasks.map(({ name }) => name)).size === tasks.length,
      'two have the same name',
    ),
  /** For every task. */
  env: environmentSchema.optional(),
  /** The sandbox whose repository gets the commits of the tasks that succeed. */
  merge_into: sandboxRefSchema.optional(),
  merge_strategy: z.enum(mergeStrategies).default('sequential'),
  /** Directory of the repository, the same in all sandboxes. */
  merge_path: guestPathSchema.default(workDirectory),
  /** How many tasks run at once. */
  parallel: z.int().min(1).max(mostTasks).default(4),
  /** For each task. */
  timeout_ms: timeoutMs.default(600_000),
  /** Keep the workers; they are destroyed at the end otherwise. */
  keep_workers: z.boolean().default(false),
  /** For the workers; as in the snapshot where it is left out. */
  allow_internet: z.boolean().optional(),
  /** A text for every worker: the file that SHARED_CONTEXT names. */
  shared_context: z.string().max(1_048_576).optional(),
  /** Notes for every worker: the file that VAULT_CONTEXT names. `read` takes a path, `search` takes words. */
  notes: z
    .array(z.strictObject({ kind: z.enum(['search', 'read']), query: z.string().min(1).max(1024) }))
    .max(20)
    .optional(),
  /** How much of each stream of a task to keep. */
  max_output_bytes: z.int().min(1).max(8_388_608).default(262_144),
});

export const swarmTaskSchema = z.object({
  name: z.string(),
  /** The worker; null where there was none. */
  sandbox_id: z.string().nullable(),
  success: z.boolean(),
  exit_code: z.number().nullable(),
  timed_out: z.boolean(),
  /** Values of secret variables are masked. */
  stdout: z.string(),
  stderr: z.string(),
  /** How much there was beyond that. */
  stdout_cut_bytes: z.number(),
  stderr_cut_bytes: z.number(),
  /** Why the task could not run. */
  error: z.string().nullable(),
  duration_ms: z.number(),
});
export type SwarmTask = z.infer<typeof swarmTaskSchema>;

export const swarmSchema = z.object({
  swarm_id: z.string(),
  /** In the order of the call. */
  tasks: z.array(swarmTaskSchema),
  workers_destroyed: z.number(),
  duration_ms: z.number(),
  /** Null where nothing was to be merged. */
  merge: mergedCommitsSchema.nullable(),
});
export type Swarm = z.infer<typeof swarmSchema>;

export const swarmEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('progress'), message: z.string() }),
  /** A task has ended. */
  z.object({ type: z.literal('task'), task: swarmTaskSchema, done: z.number(), total: z.number() }),
  z.object({ type: z.literal('swarm'), swarm: swarmSchema }),
]);
export type SwarmEvent = z.infer<typeof swarmEventSchema>;
