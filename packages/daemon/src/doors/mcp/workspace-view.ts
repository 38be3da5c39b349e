import type { Sandbox } from '@coppice/protocol';
import { z } from 'zod';

export const resourcesSchema = z.object({ vcpus: z.number(), memory_mb: z.number(), disk_gb: z.number() });

const gigabytes = (megabytes: number): number => Math.round((megabytes / 1024) * 1000) / 1000;

export const resourcesOf = (sandbox: Sandbox): z.infer<typeof resourcesSchema> => ({
  vcpus: sandbox.cpus,
  memory_mb: sandbox.memory_mb,
  disk_gb: gigabytes(sandbox.disk_mb),
});

export const workspaceSchema = z.object({
  workspace_id: z.string(),
  name: z.string(),
  state: z.string(),
  ip: z.string().nullable().describe('Null while it has no network of its own.'),
});

export const workspaceOf = (sandbox: Sandbox): z.infer<typeof workspaceSchema> => ({
  workspace_id: sandbox.id,
  name: sandbox.name,
  state: sandbox.state,
  ip: sandbox.address,
});

export const networkSchema = z.object({
  allow_internet: z.boolean(),
  allow_inter_vm: z.boolean(),
  allowed_ports: z.array(z.number()),
});

export const networkOf = (sandbox: Sandbox): z.infer<typeof networkSchema> => ({
  allow_internet: sandbox.network.allow_internet,
  allow_inter_vm: sandbox.network.allow_inter_sandbox,
  allowed_ports: sandbox.network.allowed_ports,
});

export const forkedFromSchema = z.object({
  source_workspace_id: z.string(),
  source_workspace_name: z.string(),
  snapshot_name: z.string(),
});
