import type { Mount, PortForward, Sandbox, Snapshot, Token } from '@coppice/protocol';
import type { HostMount } from '@coppice/runtime';
import type { ForwardRecord } from '../db/forward-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { TokenRecord } from '../db/token-table.ts';
import { shapeView } from './shape.ts';

const iso = (ms: number): string => new Date(ms).toISOString();
const isoOrNull = (ms: number | null): string | null => (ms === null ? null : iso(ms));

export const forwardView = (forward: ForwardRecord): PortForward => ({
  guest_port: forward.guestPort,
  host_port: forward.hostPort,
  url: `http://127.0.0.1:${forward.hostPort}`,
});

const mountView = ({ hostPath, guestPath, readOnly }: HostMount): Mount => ({
  host_path: hostPath,
  guest_path: guestPath,
  read_only: readOnly,
});

export const sandboxView = (record: SandboxRecord, forwards: readonly ForwardRecord[]): Sandbox => {
  // Values of variables never leave; their names do.
  const { env, ...shape } = shapeView(record);
  return {
    ...shape,
    labels: { ...shape.labels },
    id: record.id,
    name: record.name,
    project: record.project,
    state: record.state,
    failure: record.failure,
    image: record.imageName,
    driver: record.driver,
    env_names: Object.keys(env).sort(),
    address: record.address,
    hostname: record.hostname,
    forwards: forwards.map(forwardView),
    mounts: record.mounts.map(mountView),
    parent:
      record.parentSnapshotId === null
        ? null
        : { snapshot_id: record.parentSnapshotId, sandbox_id: record.parentSandboxId },
    created_at: iso(record.createdAtMs),
    started_at: isoOrNull(record.startedAtMs),
  };
};

/** Where directories of the host are mounted in a sandbox: what is there is in no snapshot. */
export const mountedIn = (record: Pick<SandboxRecord, 'mounts'> | undefined): string[] =>
  (record?.mounts ?? []).map(({ guestPath }) => guestPath);

export const snapshotView = (record: SnapshotRecord): Snapshot => ({
  id: record.id,
  name: record.name,
  note: record.note,
  tags: [...record.tags],
  sandbox_id: record.sandboxId,
  sandbox_name: record.sandboxName,
  project: record.project,
  parent_id: record.parentId,
  image: record.imageName,
  driver: record.driver,
  engine: record.engine,
  automatic: record.automatic,
  has_memory: record.memoryBytes !== null,
  memory_bytes: record.memoryBytes,
  memory_used_bytes: record.memoryUsedBytes,
  pause_ms: record.pauseMs,
  referenced_bytes: record.referencedBytes,
  used_bytes: record.usedBytes,
  created_at: iso(record.createdAtMs),
});

export const tokenView = (record: TokenRecord): Token => ({
  id: record.id,
  name: record.name,
  scope: record.scope,
  role: record.role,
  person: record.person,
  quota: record.quota,
  created_at: iso(record.createdAtMs),
  expires_at: isoOrNull(record.expiresAtMs),
  last_used_at: isoOrNull(record.lastUsedAtMs),
});
