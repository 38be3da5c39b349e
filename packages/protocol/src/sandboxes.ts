import { z } from 'zod';
import { destinationSchema, destinationsOf } from './destinations.ts';
import { nameSchema, sandboxIdSchema, snapshotIdSchema } from './ids.ts';
import { imageRefSchema } from './images.ts';
import { mountSchema, mountsSchema } from './mounts.ts';
import { projectRefSchema, snapshotRefSchema, treeRefSchema } from './references.ts';

const portSchema = z.int().min(1).max(65535);

/** Where everything may be reached by its address, denying a name would keep nobody from it. */
export const problemOfNames = (policy: {
  allow: readonly string[];
  deny: readonly string[];
  ask: boolean;
}): string | undefined => {
  const deny = destinationsOf(policy.deny);
  const allow = destinationsOf(policy.allow);
  if (deny.secrets.length > 0) return 'denies a secret; leave it out of what is allowed instead';
  if (allow.names.length > 0 || policy.ask) return undefined;
  if (deny.names.length > 0)
    return "denies a name while no name is allowed; allow names first, '*' for all of them";
  return allow.secrets.length > 0
    ? 'allows a secret while no name is allowed; allow its hosts too'
    : undefined;
};

export const networkPolicySchema = z
  .strictObject({
    allow_internet: z.boolean().default(false),
    allow_inter_sandbox: z.boolean().default(false),
    /** Destination ports that may be reached; empty means every port that the rest of the policy allows. */
    allowed_ports: z.array(portSchema).max(256).default([]),
    /** Addresses, blocks, names and presets. A list that is not empty is all that may be reached outside. */
    allow: z.array(destinationSchema).max(256).default([]),
    deny: z.array(destinationSchema).max(256).default([]),
    /** TCP ports of the host itself, reached at the address of the sandbox's gateway. */
    allow_host_ports: z.array(portSchema).max(64).default([]),
    /** Connections to names that no rule speaks of wait until somebody allows or refuses them, instead of being refused at once. */
    ask: z.boolean().default(false),
  })
  .superRefine((policy, context) => {
    const problem = problemOfNames(policy);
    if (problem !== undefined)
      context.addIssue({ code: 'custom', path: ['deny'], message: problem, input: policy.deny });
  });
export type NetworkPolicyBody = z.infer<typeof networkPolicySchema>;

/** Only the fields given change. */
export const networkPatchSchema = z.strictObject({
  allow_internet: z.boolean().optional(),
  allow_inter_sandbox: z.boolean().optional(),
  allowed_ports: z.array(portSchema).max(256).optional(),
  allow: z.array(destinationSchema).max(256).optional(),
  deny: z.array(destinationSchema).max(256).optional(),
  allow_host_ports: z.array(portSchema).max(64).optional(),
  ask: z.boolean().optional(),
});

/** A connection by name that has ended, was refused, or waits for an answer. */
export const networkConnectionSchema = z.object({
  id: z.int(),
  sandbox: z.string(),
  name: z.string(),
  /** 0 where only the name was asked for. */
  port: z.int(),
  verdict: z.enum(['allowed', 'refused', 'asked']),
  reason: z.string().nullable(),
  /** The address that the name led to. */
  remote: z.string().nullable(),
  bytes_sent: z.int(),
  bytes_received: z.int(),
  began_ms: z.int(),
  ended_ms: z.int(),
});
export type NetworkConnection = z.infer<typeof networkConnectionSchema>;

/** A name that a sandbox wants to reach and that nobody has allowed or refused yet. */
export const questionSchema = z.object({
  name: z.string(),
  port: z.int(),
  asked_ms: z.int(),
  /** Without an answer it is refused then. */
  until_ms: z.int(),
  /** How many connections wait. */
  connections: z.int(),
});
export type Question = z.infer<typeof questionSchema>;

/** `allow` and `deny` change the policy; `once` and `refuse` settle the connections that wait and leave the policy as it is. */
export const answers = ['allow', 'once', 'refuse', 'deny'] as const;
export const answerQuestionSchema = z.strictObject({
  name: z.string().min(1).max(253),
  /** Needed where the sandbox asks for more than one port of that name. */
  port: portSchema.optional(),
  answer: z.enum(answers),
});
export type AskAnswer = (typeof answers)[number];

export const answeredSchema = z.object({
  name: z.string(),
  port: z.int(),
  answer: z.enum(answers),
  /** How many connections waited for it. */
  connections: z.int(),
});
export type Answered = z.infer<typeof answeredSchema>;

export const connectionsQuery = z.strictObject({
  /** Only those with a higher id. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** How long to wait where there are none yet. */
  wait_ms: z.coerce.number().int().min(0).max(30_000).default(0),
});

/** The kernel gives a process 128 KiB for one variable, with its name, and 2 MiB for all and the command line together. */
const variableBytes = 131_072;
const environmentBytes = 1_048_576;
const mostVariables = 1024;

const variableNameSchema = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, 'must be a variable name');
const variableSchema = z
  .string()
  .max(variableBytes)
  .refine((value) => !value.includes('\0'), 'holds a NUL byte');

const bytesOf = (name: string, value: string): number => name.length + Buffer.byteLength(value) + 2;

/** Holds for what is asked for, and again for what it becomes together with what was there. */
const refuseLarge = (
  env: Readonly<Record<string, string | null>>,
  context: z.RefinementCtx<Record<string, string | null>>,
): void => {
  const entries = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== null);
  const message = entries.some(([name, value]) => bytesOf(name, value) > variableBytes)
    ? `a variable is larger than ${variableBytes} bytes`
    : entries.length > mostVariables
      ? `more than ${mostVariables} variables`
      : entries.reduce((sum, [name, value]) => sum + bytesOf(name, value), 0) > environmentBytes
        ? `larger than ${environmentBytes} bytes in all`
        : undefined;
  if (message !== undefined) context.addIssue({ code: 'custom', message, input: env });
};

export const environmentSchema = z.record(variableNameSchema, variableSchema).superRefine(refuseLarge);

/** Merged into what is there; null removes a variable. */
export const environmentPatchSchema = z
  .record(variableNameSchema, variableSchema.nullable())
  .superRefine(refuseLarge);

export const labelsSchema = z
  .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$/, 'must be a label name'), z.string().max(256))
  .refine((labels) => Object.keys(labels).length <= 64, 'more than 64 labels');

export const sandboxLimits = {
  cpus: z.number().min(0.1).max(256),
  memory_mb: z.int().min(16).max(4_194_304),
  disk_mb: z.int().min(16).max(67_108_864),
  pids: z.int().min(8).max(4_194_304),
};

export const driverNameSchema = z.enum(['container', 'gvisor']);

/** What happens when a sandbox has been idle for its timeout: memory to disk where the driver can, or the processes end and the disk stays. */
export const idleActionSchema = z.enum(['pause', 'stop']);

export const createSandboxSchema = z.strictObject({
  /** Unique within its project. */
  name: nameSchema.optional(),
  /** The project that it belongs to, for good; `default` where nothing is said. */
  project: projectRefSchema.optional(),
  image: imageRefSchema.optional(),
  /** Grow it from this snapshot or checkpoint instead of an image. */
  from: snapshotRefSchema.optional(),
  driver: driverNameSchema.optional(),
  cpus: sandboxLimits.cpus.optional(),
  memory_mb: sandboxLimits.memory_mb.optional(),
  disk_mb: sandboxLimits.disk_mb.optional(),
  pids: sandboxLimits.pids.optional(),
  env: environmentSchema.optional(),
  labels: labelsSchema.optional(),
  network: networkPolicySchema.optional(),
  idle_timeout_s: z.int().min(1).max(31_536_000).nullable().optional(),
  idle_action: idleActionSchema.optional(),
  max_lifetime_s: z.int().min(1).max(31_536_000).nullable().optional(),
  /** Directories of the host that it shares. Admin only. */
  mounts: mountsSchema.optional(),
});
export type CreateSandbox = z.infer<typeof createSandboxSchema>;

export const updateSandboxSchema = z.strictObject({
  name: nameSchema.optional(),
  labels: labelsSchema.optional(),
  /** For processes that start later. */
  env: environmentPatchSchema.optional(),
  cpus: sandboxLimits.cpus.optional(),
  memory_mb: sandboxLimits.memory_mb.optional(),
  disk_mb: sandboxLimits.disk_mb.optional(),
  pids: sandboxLimits.pids.optional(),
  idle_timeout_s: z.int().min(1).max(31_536_000).nullable().optional(),
  idle_action: idleActionSchema.optional(),
  max_lifetime_s: z.int().min(1).max(31_536_000).nullable().optional(),
});

export const sandboxStateSchema = z.enum([
  'creating',
  'running',
  'stopped',
  'paused',
  'failed',
  'destroying',
]);
export type SandboxState = z.infer<typeof sandboxStateSchema>;

export const portForwardSchema = z.object({
  guest_port: portSchema,
  host_port: portSchema,
  url: z.string(),
});

export const sandboxSchema = z.object({
  id: sandboxIdSchema,
  name: z.string(),
  project: z.string(),
  state: sandboxStateSchema,
  /** Why it failed, for people; null otherwise. */
  failure: z.string().nullable(),
  image: z.string(),
  driver: driverNameSchema,
  cpus: z.number(),
  memory_mb: z.number(),
  disk_mb: z.number(),
  pids: z.number(),
  /** Names only: values may be secrets. */
  env_names: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  network: networkPolicySchema,
  address: z.string().nullable(),
  hostname: z.string(),
  forwards: z.array(portForwardSchema),
  idle_timeout_s: z.number().nullable(),
  idle_action: idleActionSchema,
  max_lifetime_s: z.number().nullable(),
  /** Directories of the host that it shares; they are not part of snapshots, forks, diffs and merges. */
  mounts: z.array(mountSchema),
  /** What it grew from. */
  parent: z.object({ snapshot_id: snapshotIdSchema, sandbox_id: sandboxIdSchema.nullable() }).nullable(),
  created_at: z.string(),
  started_at: z.string().nullable(),
});
export type Sandbox = z.infer<typeof sandboxSchema>;

/** What creation and fork add to it; the token reaches this sandbox only and is shown once. */
export const createdSandboxSchema = sandboxSchema.extend({
  token: z.string(),
  /** Why checkpoint, pause and sleep will be refused, and what to do; null where memory is kept. */
  memory_notice: z.string().nullable(),
  boot_ms: z.number(),
  from_pool: z.boolean(),
});
export type CreatedSandbox = z.infer<typeof createdSandboxSchema>;

export const sandboxUsageSchema = z.object({
  memory_bytes: z.number(),
  cpu_usec: z.number(),
  pids: z.number(),
  oom_kills: z.number(),
  disk_referenced_bytes: z.number(),
  disk_used_bytes: z.number(),
});

/** What the sandbox's own token may keep in snapshots. An admin token is not held to it. */
const snapshotHoldingsSchema = z.object({
  /** Undo snapshots included. */
  count: z.number(),
  max_count: z.number(),
  /** What they would hold with one more, taken now; null when the disk cannot be read. */
  held_bytes: z.number().nullable(),
  max_bytes: z.number(),
});

export const sandboxDetailSchema = sandboxSchema.extend({
  usage: sandboxUsageSchema.nullable(),
  snapshots: snapshotHoldingsSchema,
});
export type SandboxDetail = z.infer<typeof sandboxDetailSchema>;

/** What sandboxes use now, without looking at their snapshots: cheap enough to ask for every second. */
export const usageEntrySchema = z.object({
  id: sandboxIdSchema,
  name: z.string(),
  project: z.string(),
  state: sandboxStateSchema,
  cpus: z.number(),
  memory_mb: z.number(),
  disk_mb: z.number(),
  pids: z.number(),
  /** Since a call last used it; null while one does. */
  idle_s: z.number().nullable(),
  usage: sandboxUsageSchema.nullable(),
});
export type UsageEntry = z.infer<typeof usageEntrySchema>;
export const usageQuery = z.strictObject({ project: projectRefSchema.optional() });

export const waitForPortSchema = z.strictObject({
  timeout_ms: z.int().min(0).max(600_000).default(60_000),
});
export const reachedPortSchema = z.object({ port: portSchema, waited_ms: z.number() });

export const listSandboxesQuery = z.strictObject({
  state: sandboxStateSchema.optional(),
  /** `key=value` or `key`; several separated by commas must all hold. */
  label: z.string().max(1024).optional(),
  image: imageRefSchema.optional(),
  parent: treeRefSchema.optional(),
  project: projectRefSchema.optional(),
});

export const stopSandboxSchema = z.strictObject({ grace_s: z.number().min(0).max(300).default(5) });
/** `disk` keeps the files only, and says so by name; `memory` refuses where memory cannot be kept. */
export const pauseSandboxSchema = z.strictObject({ keep: z.enum(['memory', 'disk']).default('memory') });

export const forwardPortSchema = z.strictObject({
  guest_port: portSchema,
  host_port: z.int().min(1024, 'must be 1024 or above').max(65535).optional(),
});
export type PortForward = z.infer<typeof portForwardSchema>;

export const destroyQuery = z.strictObject({
  /** What becomes of its snapshots. Those that a fork grew from, or a merge starts from, stay in any case. */
  snapshots: z.enum(['keep', 'delete']).default('keep'),
});
const keptSnapshotSchema = z.object({ id: z.string(), name: z.string(), reason: z.string() });
export type KeptSnapshot = z.infer<typeof keptSnapshotSchema>;
export const destroyedSchema = z.object({
  /** Snapshots of it that stay, and why. */
  snapshots: z.array(keptSnapshotSchema),
});
export type Destroyed = z.infer<typeof destroyedSchema>;
