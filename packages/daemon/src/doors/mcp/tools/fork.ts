import { randomBytes } from 'node:crypto';
import {
  CoppiceError,
  type CreatedSandbox,
  type Forked,
  forkSnapshotSchema,
  nameSchema,
  type Sandbox,
  type Snapshot,
  snapshotRefSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import type { Progress } from '../../../services.ts';
import { workspaceId } from '../fields.ts';
import { additive, defineTool, type Tool } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { forkedFromSchema, workspaceOf, workspaceSchema } from '../workspace-view.ts';

const snapshotName = snapshotRefSchema.describe('Name or id of the snapshot to grow from.');
const next = {
  not_found:
    'Call snapshot_list; if there is no snapshot yet, call snapshot_create first, then fork from it.',
  name_taken: 'Choose another new_name; workspace_list shows the names that are taken.',
};

const workerSchema = z.object({ workspace_id: z.string(), name: z.string(), ip: z.string().nullable() });

const manyFields = {
  source_workspace_id: z.string(),
  snapshot_name: z.string(),
  requested_count: z.number(),
  success_count: z.number(),
  failure_count: z.number(),
  workers: z.array(workerSchema),
  failures: z.array(z.object({ index: z.number(), name: z.string(), error: z.string() })),
};

const namePrefix = forkSnapshotSchema.shape.name_prefix.unwrap().describe('Names are prefix-1, prefix-2 …');
const count = z.int().min(1).max(20);

interface NewForks {
  readonly name?: string | undefined;
  readonly name_prefix?: string | undefined;
  readonly count: number;
}

/** Of one fork, which is often a step of something larger, the fraction is no measure of it. */
const reporting = (context: ToolContext, count: number): { progress: Progress } => ({
  progress: ({ message, fraction }) => context.report(message, count > 1 ? fraction : undefined),
});

/** Grows forks of a workspace as it is now. */
const forkNow = (context: ToolContext, source: Sandbox, fork: NewForks): Promise<Forked> =>
  context.call(
    'forkSandbox',
    { params: { sandbox: source.id }, body: { ...fork, ...ownName(fork, source.name) } },
    reporting(context, fork.count),
  );

/** Grows forks of a snapshot. */
const growForks = (context: ToolContext, snapshot: Snapshot, fork: NewForks): Promise<Forked> =>
  context.call(
    'forkSnapshot',
    { params: { snapshot: snapshot.id }, body: { ...fork, ...ownName(fork, snapshot.sandbox_name) } },
    reporting(context, fork.count),
  );

/** Agents fork at the same time: a name counted up from those that are there could be taken twice. */
const ownName = ({ name, name_prefix: prefix }: NewForks, source: string): { name?: string } =>
  name === undefined && prefix === undefined
    ? { name: `${source.slice(0, 44)}-fork-${randomBytes(4).toString('hex')}` }
    : {};

const many = (forked: Forked, snapshot: Snapshot, requested: number) => ({
  source_workspace_id: snapshot.sandbox_id,
  snapshot_name: snapshot.name,
  requested_count: requested,
  success_count: forked.forks.length,
  failure_count: forked.failures.length,
  workers: forked.forks.map((fork: CreatedSandbox) => ({
    workspace_id: fork.id,
    name: fork.name,
    ip: fork.address,
  })),
  failures: forked.failures.map(({ index, name, message }) => ({ index, name, error: message })),
});

const fork = defineTool({
  name: 'workspace_fork',
  title: 'Fork a workspace',
  description:
    'Grows a new running workspace (or several, with count) from a snapshot; it is independent from then on. Use it to try approaches side by side. Do not use it to go back in the same workspace (snapshot_restore).',
  actions: ['forkSnapshot', 'forkSandbox', 'getSnapshot'],
  annotations: additive,
  input: z.strictObject({
    workspace_id: workspaceId,
    snapshot_name: snapshotName.optional().describe('Name or id of a snapshot; as it is now when left out.'),
    new_name: nameSchema.optional().describe('Of the fork; made up when left out.'),
    count: count.default(1).describe('How many.'),
    name_prefix: namePrefix.optional(),
  }),
  output: workspaceSchema.partial().extend({
    forked_from: forkedFromSchema,
    ...z.object(manyFields).partial().shape,
  }),
  next,
  run: async (context, input) => {
    const source = await context.ownSandbox(input.workspace_id);
    const isOne = input.count === 1 && input.name_prefix === undefined;
    if (!isOne && input.new_name !== undefined)
      throw new CoppiceError('invalid_argument', 'new_name is for one fork; give name_prefix for several');
    const grown = {
      count: input.count,
      ...(isOne ? { name: input.new_name } : { name_prefix: input.name_prefix ?? 'worker' }),
    };
    const named = input.snapshot_name;
    const given = named === undefined ? undefined : await context.usableSnapshot(named, source);
    const forked = await context.during(`forking ${source.name}`, () =>
      given === undefined ? forkNow(context, source, grown) : growForks(context, given, grown),
    );
    const snapshot =
      given ?? (await context.call('getSnapshot', { params: { snapshot: forked.snapshot_id } }));
    const forkedFrom = {
      source_workspace_id: snapshot.sandbox_id,
      source_workspace_name: snapshot.sandbox_name,
      snapshot_name: snapshot.name,
    };
    if (isOne) return { ...workspaceOf(forked.forks[0]!), forked_from: forkedFrom };
    return { ...many(forked, snapshot, input.count), forked_from: forkedFrom };
  },
});

const batch = defineTool({
  name: 'workspace_batch_fork',
  title: 'Fork several workspaces at once',
  description:
    'Grows count workspaces from one snapshot in one call, named prefix-1, prefix-2 …. Do not use it for one fork with a name (workspace_fork), nor when each only runs one command and ends (swarm_run).',
  actions: ['forkSnapshot'],
  annotations: additive,
  input: z.strictObject({
    workspace_id: workspaceId,
    snapshot_name: snapshotName.default('golden'),
    count: count.describe('How many.'),
    name_prefix: namePrefix.default('worker'),
  }),
  output: z.object(manyFields),
  next: { ...next, name_taken: 'Choose another name_prefix; workspace_list shows the names that are taken.' },
  run: async (context, input) => {
    const source = await context.ownSandbox(input.workspace_id);
    const snapshot = await context.usableSnapshot(input.snapshot_name, source);
    const forked = await context.during(`forking ${source.name}`, () =>
      growForks(context, snapshot, { count: input.count, name_prefix: input.name_prefix }),
    );
    return many(forked, snapshot, input.count);
  },
});

export const forkTools: readonly Tool[] = [fork, batch];
