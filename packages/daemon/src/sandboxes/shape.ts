import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotShape } from '../db/snapshot-table.ts';

/**
 * What a caller chooses about a sandbox, what a snapshot carries on to what grows from it, and what both are called in the API.
 * A property that joins them is added here, to SnapshotShape, to the schemas of the protocol and to the columns.
 */
const apiNames = {
  cpus: 'cpus',
  memoryMb: 'memory_mb',
  diskMb: 'disk_mb',
  pids: 'pids',
  env: 'env',
  labels: 'labels',
  network: 'network',
  idleTimeoutS: 'idle_timeout_s',
  idleAction: 'idle_action',
  maxLifetimeS: 'max_lifetime_s',
} as const satisfies Record<keyof SnapshotShape, string>;

type ApiShape = { readonly [K in keyof SnapshotShape as (typeof apiNames)[K]]: SnapshotShape[K] };

const fields = Object.keys(apiNames) as (keyof SnapshotShape)[];

/** What of a sandbox carries on. */
export const shapeOf = (record: SnapshotShape | SandboxRecord): SnapshotShape =>
  Object.fromEntries(fields.map((field) => [field, record[field]])) as unknown as SnapshotShape;

/** What the input says, null included, and where it says nothing, what holds otherwise. */
export const shapeFrom = (
  input: { readonly [K in keyof ApiShape]?: ApiShape[K] | undefined },
  otherwise: SnapshotShape,
): SnapshotShape => {
  const chosen = fields.map((field) => {
    const said = input[apiNames[field]];
    return [field, said === undefined ? otherwise[field] : said];
  });
  return Object.fromEntries(chosen) as unknown as SnapshotShape;
};

export const shapeView = (shape: SnapshotShape): ApiShape =>
  Object.fromEntries(fields.map((field) => [apiNames[field], shape[field]])) as unknown as ApiShape;
