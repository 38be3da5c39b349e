import {
  createSandboxSchema,
  destroyedSchema,
  formatMount,
  parseMount,
  type Sandbox,
} from '@coppice/protocol';
import { z } from 'zod';
import { ownerOf } from '../../../sessions/sessions.ts';
import { workspaceId } from '../fields.ts';
import { additive, defineTool, readOnly, replacing, settling, type Tool } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import {
  forkedFromSchema,
  networkOf,
  networkSchema,
  resourcesOf,
  resourcesSchema,
  workspaceOf,
  workspaceSchema,
} from '../workspace-view.ts';

const create = createSandboxSchema.shape;

const expiryOf = ({ created_at: made, max_lifetime_s: lifetimeS }: Sandbox): string | null =>
  lifetimeS === null ? null : new Date(Date.parse(made) + lifetimeS * 1000).toISOString();

const createWorkspace = defineTool({
  name: 'workspace_create',
  title: 'Create a workspace',
  description:
    'Creates and starts an isolated Linux computer with its own disk, processes and network. Do not use it for what needs no shell, or when a workspace that fits exists (workspace_list); to copy one, use workspace_fork.',
  actions: ['createSandbox'],
  annotations: additive,
  input: z.strictObject({
    name: create.name.describe('Unique; made up when left out.'),
    base_image: create.image.describe('Image; the default has the tools of the host.'),
    driver: create.driver.describe('Default: what this machine is set to.'),
    vcpus: create.cpus.describe('Processors.'),
    memory_mb: create.memory_mb.describe('Memory limit.'),
    disk_gb: z.number().min(0.1).max(65_536).optional().describe('Disk limit.'),
    allow_internet: z.boolean().default(false).describe('Let it reach the internet.'),
    mounts: z
      .array(z.string())
      .optional()
      .describe('HOST:GUEST[:ro], directories of the host to share; administrators only, in no snapshot.'),
    lifetime_hours: z
      .number()
      .min(0.02)
      .max(8760)
      .optional()
      .describe('Destroyed after that; see expires_at.'),
  }),
  output: workspaceSchema.extend({
    expires_at: z.string().nullable().describe('It is destroyed then, with its snapshots.'),
    boot_time_ms: z.number(),
    from_pool: z.boolean(),
    resources: resourcesSchema,
  }),
  next: {
    name_taken: 'Call workspace_list: use the workspace that has the name, or choose another name.',
    not_found: 'Call image_list for the images there are, or leave base_image out to use the default.',
  },
  run: (context, input) =>
    context.during('creating the workspace', async () => {
      const body = {
        name: input.name,
        image: input.base_image,
        driver: input.driver,
        cpus: input.vcpus,
        memory_mb: input.memory_mb,
        disk_mb: input.disk_gb === undefined ? undefined : Math.round(input.disk_gb * 1024),
        network: { allow_internet: input.allow_internet },
        mounts: input.mounts?.map((text) => parseMount(text)),
        ...(input.lifetime_hours === undefined
          ? {}
          : { max_lifetime_s: Math.round(input.lifetime_hours * 3600) }),
      };
      const created = await context.call(
        'createSandbox',
        { body },
        { progress: ({ message, fraction }) => context.report(message, fraction) },
      );
      return {
        ...workspaceOf(created),
        expires_at: expiryOf(created),
        boot_time_ms: created.boot_ms,
        from_pool: created.from_pool,
        resources: resourcesOf(created),
      };
    }),
});

const destroy = defineTool({
  name: 'workspace_destroy',
  title: 'Destroy a workspace',
  description:
    'Ends every process and removes the disk and its snapshots for good; snapshots that forks grew from stay, and are named. Do not use it on a workspace that somebody may still need.',
  actions: ['destroySandbox'],
  annotations: replacing,
  input: z.strictObject({
    workspace_id: workspaceId,
    keep_snapshots: z.boolean().default(false).describe('Leave its snapshots, to fork from later.'),
  }),
  output: z.object({
    workspace_id: z.string(),
    name: z.string(),
    status: z.literal('destroyed'),
    snapshots_kept: destroyedSchema.shape.snapshots.describe('What stays, and why.'),
  }),
  run: async (context, { workspace_id: ref, keep_snapshots: keep }) => {
    const { id, name } = await context.ownSandbox(ref);
    const query = { snapshots: keep ? ('keep' as const) : ('delete' as const) };
    const { snapshots } = await context.during(`destroying ${name}`, () =>
      context.call('destroySandbox', { params: { sandbox: id }, query }),
    );
    return { workspace_id: id, name, status: 'destroyed' as const, snapshots_kept: snapshots };
  },
});

const start = defineTool({
  name: 'workspace_start',
  title: 'Start a workspace',
  description:
    'Starts a stopped workspace, or wakes a paused one. Not needed after workspace_create, workspace_fork or snapshot_restore.',
  actions: ['getSandbox', 'startSandbox', 'resumeSandbox'],
  annotations: settling,
  input: z.strictObject({ workspace_id: workspaceId }),
  output: workspaceSchema,
  run: async (context, { workspace_id: ref }) => {
    const { id, state, name } = await context.ownSandbox(ref);
    const params = { sandbox: id };
    if (state === 'running') return workspaceOf(await context.call('getSandbox', { params }));
    return workspaceOf(
      await context.during(`starting ${name}`, () =>
        context.call(state === 'paused' ? 'resumeSandbox' : 'startSandbox', { params }),
      ),
    );
  },
});

const stop = defineTool({
  name: 'workspace_stop',
  title: 'Stop a workspace',
  description:
    'Ends every process and frees memory; the disk stays, and workspace_start brings it back. Do not use it while background jobs must go on.',
  actions: ['getSandbox', 'stopSandbox'],
  annotations: replacing,
  input: z.strictObject({ workspace_id: workspaceId }),
  output: workspaceSchema,
  run: async (context, { workspace_id: ref }) => {
    const { id, state, name } = await context.ownSandbox(ref);
    const params = { sandbox: id };
    if (state === 'stopped') return workspaceOf(await context.call('getSandbox', { params }));
    return workspaceOf(
      await context.during(`stopping ${name}`, () => context.call('stopSandbox', { params, body: {} })),
    );
  },
});

const states = z.enum(['running', 'stopped', 'paused', 'suspended', 'failed', 'creating', 'destroying']);

const list = defineTool({
  name: 'workspace_list',
  title: 'List workspaces',
  description:
    'All workspaces, also those of other sessions (owned: false). Use it to find one again in a later session. Do not poll with it.',
  actions: ['getSandbox'],
  annotations: readOnly,
  input: z.strictObject({
    state_filter: states.optional().describe('Only those in this state.'),
  }),
  output: z.object({
    workspaces: z.array(
      workspaceSchema.extend({
        owned: z.boolean(),
        session: z.string().nullable(),
        resources: resourcesSchema,
      }),
    ),
  }),
  run: async (context, { state_filter: filter }) => {
    const state = filter === 'suspended' ? 'paused' : filter;
    const sandboxes = (await context.visible()).filter(
      (sandbox) => state === undefined || sandbox.state === state,
    );
    const workspaces = sandboxes.map(async (sandbox) => ({
      ...workspaceOf(sandbox),
      owned: await context.owns(sandbox),
      session: ownerOf(sandbox),
      resources: resourcesOf(sandbox),
    }));
    return { workspaces: await Promise.all(workspaces) };
  },
});

/** The source may be gone; the snapshot keeps its name. A sandbox's own token learns nothing of other sandboxes. */
const forkedFrom = async (
  context: ToolContext,
  parent: { snapshot_id: string; sandbox_id: string | null } | null,
): Promise<z.infer<typeof forkedFromSchema> | null> => {
  if (parent === null || !context.may('getSnapshot')) return null;
  const snapshot = await context.call('getSnapshot', { params: { snapshot: parent.snapshot_id } });
  return {
    source_workspace_id: snapshot.sandbox_id,
    source_workspace_name: snapshot.sandbox_name,
    snapshot_name: snapshot.name,
  };
};

const info = defineTool({
  name: 'workspace_info',
  title: 'Inspect a workspace',
  description:
    'State, resources, network policy, port forwards, snapshots, disk use and what the workspace was forked from. Do not use it to see files (file_list) or output (exec_poll).',
  actions: ['getSandbox', 'listSandboxSnapshots'],
  extras: ['getSnapshot'],
  annotations: readOnly,
  input: z.strictObject({ workspace_id: workspaceId }),
  output: workspaceSchema.extend({
    owned: z.boolean(),
    session: z.string().nullable(),
    failure: z.string().nullable(),
    base_image: z.string(),
    driver: z.string(),
    resources: resourcesSchema,
    env_names: z.array(z.string()),
    network: networkSchema.extend({
      port_forwards: z.array(z.object({ host_port: z.number(), guest_port: z.number() })),
    }),
    snapshots: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        has_memory: z.boolean(),
        parent: z.string().nullable(),
        created_at: z.string(),
      }),
    ),
    mounts: z.array(z.string()).describe('Directories of the host; not part of snapshots, forks and merges.'),
    forked_from: forkedFromSchema.nullable(),
    created_at: z.string(),
    disk_used_bytes: z.number().nullable(),
    disk_volsize_bytes: z.number(),
    memory_used_bytes: z.number().nullable(),
  }),
  run: async (context, { workspace_id: ref }) => {
    const params = { sandbox: (await context.look(ref)).id };
    const sandbox = await context.call('getSandbox', { params });
    const { items: snapshots } = await context.call('listSandboxSnapshots', { params });
    return {
      ...workspaceOf(sandbox),
      owned: await context.owns(sandbox),
      session: ownerOf(sandbox),
      failure: sandbox.failure,
      base_image: sandbox.image,
      driver: sandbox.driver,
      resources: resourcesOf(sandbox),
      env_names: sandbox.env_names,
      network: {
        ...networkOf(sandbox),
        port_forwards: sandbox.forwards.map(({ host_port, guest_port }) => ({ host_port, guest_port })),
      },
      snapshots: snapshots.map((snapshot) => ({
        id: snapshot.id,
        name: snapshot.name,
        has_memory: snapshot.has_memory,
        parent: snapshot.parent_id,
        created_at: snapshot.created_at,
      })),
      mounts: sandbox.mounts.map(formatMount),
      forked_from: await forkedFrom(context, sandbox.parent),
      created_at: sandbox.created_at,
      disk_used_bytes: sandbox.usage?.disk_referenced_bytes ?? null,
      disk_volsize_bytes: sandbox.disk_mb * 1024 * 1024,
      memory_used_bytes: sandbox.usage?.memory_bytes ?? null,
    };
  },
});

export const lifecycleTools: readonly Tool[] = [createWorkspace, destroy, start, stop, list, info];
