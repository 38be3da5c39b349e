import { forwardPortSchema, networkPatchSchema } from '@coppice/protocol';
import { z } from 'zod';
import { workspaceId } from '../fields.ts';
import { defineTool, readOnly, replacing, settling, type Tool } from '../tool.ts';
import { networkOf, networkSchema } from '../workspace-view.ts';

const { guest_port: port, host_port: hostPort } = forwardPortSchema.shape;
const guestPort = port.describe('Port inside the workspace.');

const forward = defineTool({
  name: 'port_forward',
  title: 'Forward a port to the host',
  description:
    'Makes a port of the workspace reachable at 127.0.0.1:host_port of the host; no network policy is needed for it. Do not use it to reach one workspace from another (network_policy with allow_inter_vm).',
  actions: ['forwardPort', 'removePort'],
  annotations: settling,
  input: z.strictObject({
    workspace_id: workspaceId,
    guest_port: guestPort,
    host_port: hostPort.describe('A free one when left out.'),
  }),
  output: z.object({
    workspace_id: z.string(),
    guest_port: z.number(),
    host_port: z.number(),
    url: z.string(),
  }),
  next: {
    in_use: 'Choose another host_port, or leave it out to get a free one; workspace_info shows the forwards.',
  },
  run: async (context, input) => {
    const { id, forwards } = await context.ownSandbox(input.workspace_id);
    const existing = forwards.find((found) => found.guest_port === input.guest_port);
    const same =
      existing !== undefined && (input.host_port === undefined || input.host_port === existing.host_port);
    // The second call of the guide asks for another host port of the same guest port: it takes the place of the first.
    const replaced = same ? undefined : existing;
    const params = { sandbox: id };
    const forward = (hostPort: number | undefined) =>
      context.call('forwardPort', {
        params,
        body: { guest_port: input.guest_port, host_port: hostPort },
      });
    if (replaced !== undefined)
      await context.call('removePort', { params: { ...params, port: input.guest_port } });
    try {
      return { workspace_id: id, ...(await forward(input.host_port)) };
    } catch (error) {
      if (replaced !== undefined) await forward(replaced.host_port);
      throw error;
    }
  },
});

const remove = defineTool({
  name: 'port_forward_remove',
  title: 'Remove a port forward',
  description:
    'Ends the forward of a guest port and its open connections. Do not use it to stop the service itself (exec_kill).',
  actions: ['removePort'],
  annotations: replacing,
  input: z.strictObject({ workspace_id: workspaceId, guest_port: guestPort }),
  output: z.object({ workspace_id: z.string(), guest_port: z.number(), status: z.literal('removed') }),
  next: { not_found: 'Call workspace_info to see the forwards there are.' },
  run: async (context, { workspace_id: ref, guest_port: removed }) => {
    const id = await context.own(ref);
    await context.call('removePort', { params: { sandbox: id, port: removed } });
    return { workspace_id: id, guest_port: removed, status: 'removed' as const };
  },
});

const ip = defineTool({
  name: 'workspace_ip',
  title: 'Address of a workspace',
  description:
    'IP address of the workspace, for other workspaces; null while its policy gives it no network. Do not use it to reach a service from the host (port_forward).',
  actions: ['getSandbox'],
  annotations: readOnly,
  input: z.strictObject({ workspace_id: workspaceId }),
  output: z.object({ workspace_id: z.string(), ip: z.string().nullable() }),
  run: async (context, { workspace_id: ref }) => {
    const { id, address } = await context.look(ref);
    return { workspace_id: id, ip: address };
  },
});

const policy = defineTool({
  name: 'network_policy',
  title: 'Set the network policy',
  description:
    'Opens or closes the way to the internet and to other workspaces, at once and while it runs; what is left out stays as it is. Do not open more than the task needs, and close it again when you are done.',
  actions: ['setNetwork'],
  annotations: settling,
  input: z.strictObject({
    workspace_id: workspaceId,
    allow_internet: z.boolean().optional().describe('Let it reach the internet.'),
    allow_inter_vm: z.boolean().optional().describe('Reach workspaces that allow it too.'),
    allowed_ports: networkPatchSchema.shape.allowed_ports.describe(
      'Destination ports that may be reached; empty means all.',
    ),
  }),
  output: z.object({ workspace_id: z.string(), network_policy: networkSchema }),
  run: async (context, input) => {
    const id = await context.own(input.workspace_id);
    const sandbox = await context.call('setNetwork', {
      params: { sandbox: id },
      body: {
        allow_internet: input.allow_internet,
        allow_inter_sandbox: input.allow_inter_vm,
        allowed_ports: input.allowed_ports,
      },
    });
    return { workspace_id: id, network_policy: networkOf(sandbox) };
  },
});

export const networkTools: readonly Tool[] = [forward, remove, ip, policy];
