import {
  CoppiceError,
  type CreatedSandbox,
  type CreateSandbox,
  type listSandboxesQuery,
  networkPolicySchema,
  type Sandbox,
  type SandboxDetail,
  type updateSandboxSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { Config } from '../config/config.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { ImageRef, ImageService } from '../images/image-service.ts';
import type { CallOptions } from '../services.ts';
import type { SnapshotAllowance } from '../snapshots/snapshot-allowance.ts';
import type { Core } from './core.ts';
import { diskBytes, toLimits } from './machine-starter.ts';
import { assertEnvironment, assertMemory, type SandboxCreator } from './sandbox-creator.ts';
import { hostnameOf, type SandboxNames } from './sandbox-names.ts';
import type { SandboxPlan } from './sandbox-plan.ts';
import { sandboxView } from './views.ts';
import { checkWorkspace } from './workspace-check.ts';

type NamedInput = CreateSandbox & { readonly name: string; readonly workspaceIdentity?: string };

export interface SandboxServiceParts {
  readonly core: Core;
  readonly config: Config;
  readonly images: ImageService;
  readonly creator: SandboxCreator;
  readonly names: SandboxNames;
  readonly allowance: SnapshotAllowance;
  /** The directory of it, which no workspace may reach. */
  readonly home: string;
}

/** Creating, finding, inspecting and changing sandboxes; lifecycle.ts starts and ends them. */
export class SandboxService {
  readonly #core: Core;
  readonly #config: Config;
  readonly #images: ImageService;
  readonly #creator: SandboxCreator;
  readonly #names: SandboxNames;
  readonly #allowance: SnapshotAllowance;
  readonly #home: string;

  constructor(parts: SandboxServiceParts) {
    this.#core = parts.core;
    this.#config = parts.config;
    this.#images = parts.images;
    this.#creator = parts.creator;
    this.#names = parts.names;
    this.#allowance = parts.allowance;
    this.#home = parts.home;
  }

  find(ref: string): string | undefined {
    return this.#core.finder.find(ref)?.id;
  }

  peek(ref: string): Sandbox {
    return this.view(this.#core.finder.get(ref));
  }

  environment(ref: string): Readonly<Record<string, string>> {
    return this.#core.finder.get(ref).env;
  }

  async create(input: CreateSandbox, options: CallOptions = {}): Promise<CreatedSandbox> {
    const { name } = input;
    if (name === undefined)
      return this.#names.withFresh(
        (fresh) => this.#createNamed({ ...input, name: fresh }, options),
        this.#creator.warmName,
      );
    this.#names.assertFree(name);
    return this.#createNamed({ ...input, name }, options);
  }

  async #createNamed(asked: NamedInput, options: CallOptions): Promise<CreatedSandbox> {
    const { workspace } = asked;
    const input =
      workspace === undefined
        ? asked
        : { ...asked, workspaceIdentity: await checkWorkspace(workspace, this.#home) };
    if (input.from !== undefined) return this.#createFrom(input, input.from);
    return this.#images.use(input.image ?? this.#config.default_image, options, async (image) =>
      this.#creator.create(await this.#checkedPlan(input, image)),
    );
  }

  async list(query: z.output<typeof listSandboxesQuery>): Promise<Sandbox[]> {
    const labels = (query.label ?? '').split(',').filter((text) => text !== '');
    const parent = query.parent === undefined ? undefined : this.#parentIds(query.parent);
    return this.#core.state.sandboxes
      .all()
      .filter(
        (record) =>
          (query.state === undefined || record.state === query.state) &&
          (query.image === undefined || record.imageName === query.image || record.imageId === query.image) &&
          (parent === undefined ||
            parent.has(record.parentSnapshotId ?? '') ||
            parent.has(record.parentSandboxId ?? '')) &&
          labels.every((label) => hasLabel(record, label)),
      )
      .map((record) => this.view(record));
  }

  async get(ref: string): Promise<SandboxDetail> {
    const record = this.#core.finder.get(ref);
    const arrival = this.#core.machines.arrival(record.id);
    if (arrival !== undefined) await arrival;
    const [usage, snapshots] = await Promise.all([this.#usage(record.id), this.#snapshots(record)]);
    return { ...this.view(this.#core.finder.get(record.id)), usage, snapshots };
  }

  async update(ref: string, input: z.output<typeof updateSandboxSchema>): Promise<Sandbox> {
    const core = this.#core;
    const { id } = core.finder.get(ref);
    return core.locks.exclusive(id, async () => {
      const before = core.finder.get(id);
      if (input.name !== undefined && input.name !== before.name) this.#names.assertFree(input.name);
      const changes = changesOf(before, input);
      const after = { ...before, ...changes };
      await this.#checkIdle(after);
      this.#checkLimits(before, after);
      const machine = core.machines.get(id);
      if (after.diskMb !== before.diskMb) await core.disks.resizeDisk(id, diskBytes(after));
      if (machine !== undefined && limitsDiffer(before, after)) await machine.setLimits(toLimits(after));
      core.journal.commit((emit) => {
        core.state.sandboxes.update(id, changes);
        if (after.name !== before.name) core.state.snapshots.renameSandbox(id, after.name);
        emit('sandbox.updated', id, { name: after.name, changed: Object.keys(input).sort() });
      });
      core.activity.touch(id);
      return this.view(core.finder.get(id));
    });
  }

  view(record: SandboxRecord): Sandbox {
    return sandboxView(record, this.#core.state.forwards.ofSandbox(record.id));
  }

  /** What the input asks for, and defaults where it says nothing. */
  plan(input: NamedInput, image: ImageRef): SandboxPlan {
    const { defaults, default_driver: defaultDriver } = this.#config;
    const plan: SandboxPlan = {
      name: input.name,
      hostname: hostnameOf(input.name),
      imageId: image.id,
      imageName: image.name,
      driver: input.driver ?? defaultDriver,
      cpus: input.cpus ?? defaults.cpus,
      memoryMb: input.memory_mb ?? defaults.memory_mb,
      diskMb: input.disk_mb ?? defaults.disk_mb,
      pids: input.pids ?? defaults.pids,
      env: input.env ?? {},
      labels: input.labels ?? {},
      network: input.network ?? networkPolicySchema.parse({}),
      idleTimeoutS: input.idle_timeout_s === undefined ? defaults.idle_timeout_s : input.idle_timeout_s,
      idleAction: input.idle_action ?? defaults.idle_action,
      maxLifetimeS: input.max_lifetime_s ?? null,
      workspace: input.workspace ?? null,
      workspaceIdentity: input.workspaceIdentity ?? null,
      parentSnapshotId: null,
      parentSandboxId: null,
      baseSnapshotId: null,
    };
    this.#core.starter.driver(plan.driver);
    return plan;
  }

  async #checkedPlan(input: NamedInput, image: ImageRef): Promise<SandboxPlan> {
    const plan = this.plan(input, image);
    await this.#checkIdle(plan);
    return plan;
  }

  async #createFrom(input: NamedInput, from: string): Promise<CreatedSandbox> {
    const { finder, locks } = this.#core;
    const { id } = finder.snapshot(from);
    return locks.shared(id, async () => {
      const snapshot = finder.snapshot(id);
      if (input.image !== undefined && input.image !== snapshot.imageName && input.image !== snapshot.imageId)
        throw new CoppiceError(
          'invalid_argument',
          `the snapshot ${from} stands on the image ${snapshot.imageName}`,
          {
            hint: 'Leave the image out: it comes with the snapshot.',
          },
        );
      const memory = this.#memoryFits(input, snapshot);
      const { shape } = snapshot;
      const image = { id: snapshot.imageId, name: snapshot.imageName };
      const plan = await this.#checkedPlan(
        {
          ...input,
          driver: input.driver ?? snapshot.driver,
          cpus: input.cpus ?? shape.cpus,
          memory_mb: input.memory_mb ?? shape.memoryMb,
          disk_mb: input.disk_mb ?? shape.diskMb,
          pids: input.pids ?? shape.pids,
          env: { ...shape.env, ...input.env },
          labels: input.labels ?? { ...shape.labels },
          network: input.network ?? shape.network,
          idle_timeout_s: input.idle_timeout_s === undefined ? shape.idleTimeoutS : input.idle_timeout_s,
          idle_action: input.idle_action ?? shape.idleAction,
          max_lifetime_s: input.max_lifetime_s === undefined ? shape.maxLifetimeS : input.max_lifetime_s,
        },
        image,
      );
      const lineage = { parentSnapshotId: id, parentSandboxId: snapshot.sandboxId, baseSnapshotId: id };
      return this.#creator.create({ ...plan, ...lineage }, { snapshot, memory });
    });
  }

  #memoryFits(input: CreateSandbox, snapshot: SnapshotRecord): boolean {
    if (snapshot.memoryBytes === null) return false;
    if (input.driver === undefined || input.driver === snapshot.driver) return true;
    throw new CoppiceError(
      'unsupported',
      `the checkpoint ${snapshot.name} was made by the driver ${snapshot.driver}; ${input.driver} cannot go on with its memory`,
      { hint: 'Leave the driver out.' },
    );
  }

  /** An idle timeout pauses and never kills, unless its owner said `stop` by name. */
  async #checkIdle(plan: Pick<SandboxRecord, 'driver' | 'idleTimeoutS' | 'idleAction'>): Promise<void> {
    if (plan.idleTimeoutS === null || plan.idleAction === 'stop') return;
    const refusal = await this.#core.starter.driver(plan.driver).memoryRefusal();
    if (refusal === undefined) return;
    throw new CoppiceError(
      'unsupported',
      `an idle sandbox of the driver ${plan.driver} cannot be paused: its memory cannot be kept here: ${refusal}`,
      { hint: 'Use the driver gvisor, or idle_action stop, which ends its processes and keeps the disk.' },
    );
  }

  /** What creation would refuse too. */
  #checkLimits(before: SandboxRecord, after: SandboxRecord): void {
    assertEnvironment(after.env);
    const addedMb = after.memoryMb - before.memoryMb;
    if (before.state === 'running' && addedMb > 0)
      assertMemory(this.#core.state.sandboxes.sums().memoryMb, addedMb, this.#config.limits.total_memory_mb);
  }

  async #usage(id: string): Promise<SandboxDetail['usage']> {
    const machine = this.#core.machines.get(id);
    const [running, disk] = await Promise.all([
      machine?.usage().catch(() => undefined),
      this.#core.disks.diskUsage(id).catch(() => undefined),
    ]);
    if (disk === undefined) return null;
    return {
      memory_bytes: running?.memoryBytes ?? 0,
      cpu_usec: running?.cpuUsec ?? 0,
      pids: running?.pids ?? 0,
      oom_kills: running?.oomKills ?? 0,
      disk_referenced_bytes: disk.referencedBytes,
      disk_used_bytes: disk.usedBytes,
    };
  }

  async #snapshots(record: SandboxRecord): Promise<SandboxDetail['snapshots']> {
    const { count, maxCount, heldBytes, maxBytes } = await this.#allowance.holdings(record);
    return { count, max_count: maxCount, held_bytes: heldBytes, max_bytes: maxBytes };
  }

  #parentIds(ref: string): Set<string> {
    const snapshot = this.#core.finder.findSnapshot(ref);
    return new Set([snapshot?.id ?? this.#core.finder.find(ref)?.id ?? ref]);
  }
}

const hasLabel = (record: SandboxRecord, text: string): boolean => {
  const equals = text.indexOf('=');
  if (equals < 0) return Object.hasOwn(record.labels, text);
  return record.labels[text.slice(0, equals)] === text.slice(equals + 1);
};

const limitsDiffer = (a: SandboxRecord, b: SandboxRecord): boolean =>
  a.cpus !== b.cpus || a.memoryMb !== b.memoryMb || a.pids !== b.pids;

/** What is asked for and nothing else: other fields may change while this is done, as does the base when it is deleted. */
function changesOf(
  record: SandboxRecord,
  input: z.output<typeof updateSandboxSchema>,
): Partial<Omit<SandboxRecord, 'id'>> {
  const env = { ...record.env };
  for (const [name, value] of Object.entries(input.env ?? {})) {
    if (value === null) delete env[name];
    else env[name] = value;
  }
  return {
    name: input.name ?? record.name,
    labels: input.labels ?? record.labels,
    env,
    cpus: input.cpus ?? record.cpus,
    memoryMb: input.memory_mb ?? record.memoryMb,
    diskMb: input.disk_mb ?? record.diskMb,
    pids: input.pids ?? record.pids,
    idleTimeoutS: input.idle_timeout_s === undefined ? record.idleTimeoutS : input.idle_timeout_s,
    idleAction: input.idle_action ?? record.idleAction,
    maxLifetimeS: input.max_lifetime_s === undefined ? record.maxLifetimeS : input.max_lifetime_s,
    lifetimeWarned: input.max_lifetime_s === undefined ? record.lifetimeWarned : false,
  };
}
