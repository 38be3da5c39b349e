import type { DiskStore } from '@coppice/disks';
import {
  type Belonging,
  CoppiceError,
  type CreatedSandbox,
  type CreateSandbox,
  defaultProject,
  type listSandboxesQuery,
  type Sandbox,
  type SandboxDetail,
  type UsageEntry,
  type updateSandboxSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { Config } from '../config/config.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { ImageRef, ImageService } from '../images/image-service.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { CallOptions } from '../services.ts';
import type { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import type { SnapshotAllowance } from '../snapshots/snapshot-allowance.ts';
import type { Quotas } from '../tokens/quotas.ts';
import type { Activity } from './activity.ts';
import type { MachineStarter } from './machine-starter.ts';
import { diskBytes, toLimits } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import { bindMounts } from './mount-check.ts';
import { assertEnvironment, assertMemory, type SandboxCreator } from './sandbox-creator.ts';
import type { SandboxFinder } from './sandbox-finder.ts';
import type { SandboxNames } from './sandbox-names.ts';
import type { NamedInput, SandboxPlan, SandboxPlanner } from './sandbox-plan.ts';
import { shapeFrom, shapeView } from './shape.ts';
import { sandboxView } from './views.ts';

export interface SandboxServiceParts {
  readonly memory: MemoryPolicy;
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly activity: Activity;
  readonly now: () => number;
  readonly config: Config;
  readonly planner: SandboxPlanner;
  readonly images: ImageService;
  readonly creator: SandboxCreator;
  readonly names: SandboxNames;
  readonly allowance: SnapshotAllowance;
  readonly quotas: Quotas;
  /** The directory of it, which no mount may reach. */
  readonly home: string;
}

/** Creating, finding, inspecting and changing sandboxes; lifecycle.ts starts and ends them. */
export class SandboxService {
  readonly #parts: SandboxServiceParts;
  readonly #config: Config;
  readonly #images: ImageService;
  readonly #creator: SandboxCreator;
  readonly #names: SandboxNames;
  readonly #allowance: SnapshotAllowance;
  readonly #home: string;

  constructor(parts: SandboxServiceParts) {
    this.#parts = parts;
    this.#config = parts.config;
    this.#images = parts.images;
    this.#creator = parts.creator;
    this.#names = parts.names;
    this.#allowance = parts.allowance;
    this.#home = parts.home;
  }

  find(ref: string): Belonging | undefined {
    const record = this.#parts.finder.find(ref);
    return record && { project: record.project, sandboxId: record.id, runId: record.runId };
  }

  peek(ref: string): Sandbox {
    return this.view(this.#parts.finder.get(ref));
  }

  environment(ref: string): Readonly<Record<string, string>> {
    return this.#parts.finder.get(ref).env;
  }

  async create(asked: CreateSandbox, options: CallOptions = {}): Promise<CreatedSandbox> {
    const { name, project = defaultProject } = asked;
    const input = { ...asked, owner: options.owner, runId: options.runId };
    this.#assertHeld(asked.disk_mb);
    if (name === undefined)
      return this.#names.withFresh(
        project,
        (fresh) => this.#createNamed({ ...input, name: fresh }, options),
        this.#creator.warmName,
      );
    this.#names.assertFree(project, name);
    return this.#createNamed({ ...input, name }, options);
  }

  async #createNamed(asked: NamedInput, options: CallOptions): Promise<CreatedSandbox> {
    const input = { ...asked, boundMounts: await bindMounts(asked.mounts ?? [], this.#home) };
    if (input.from !== undefined) return this.#createFrom(input, input.from, options);
    return this.#images.use(input.image ?? this.#config.default_image, options, async (image) =>
      this.#creator.create(await this.#checkedPlan(input, image), { caller: options.signal }),
    );
  }

  async list(query: z.output<typeof listSandboxesQuery>): Promise<Sandbox[]> {
    const labels = (query.label ?? '').split(',').filter((text) => text !== '');
    const parent = query.parent === undefined ? undefined : this.#parentIds(query.parent);
    return this.#parts.state.sandboxes
      .all()
      .filter(
        (record) =>
          (query.project === undefined || record.project === query.project) &&
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
    const record = this.#parts.finder.get(ref);
    const arrival = this.#parts.machines.arrival(record.id);
    if (arrival !== undefined) await arrival;
    const [usage, snapshots] = await Promise.all([this.#usage(record.id), this.#snapshots(record)]);
    return { ...this.view(this.#parts.finder.get(record.id)), usage, snapshots };
  }

  async usage(project?: string): Promise<UsageEntry[]> {
    const { state, activity, now } = this.#parts;
    const records = state.sandboxes
      .all()
      .filter((record) => project === undefined || record.project === project);
    return Promise.all(
      records.map(async (record) => {
        const { id, name, project: of, cpus, memoryMb, diskMb, pids, activeAtMs } = record;
        const usedMs = activity.lastMs(id) ?? activeAtMs;
        return {
          id,
          name,
          project: of,
          state: record.state,
          cpus,
          memory_mb: memoryMb,
          disk_mb: diskMb,
          pids,
          idle_s: activity.isHeld(id) ? null : Math.max(0, Math.round((now() - usedMs) / 1000)),
          usage: await this.#usage(id),
        };
      }),
    );
  }

  async update(ref: string, input: z.output<typeof updateSandboxSchema>): Promise<Sandbox> {
    const core = this.#parts;
    const { id } = core.finder.get(ref);
    this.#assertHeld(input.disk_mb);
    return core.locks.exclusive(id, async () => {
      const before = core.finder.get(id);
      if (input.name !== undefined && input.name !== before.name)
        this.#names.assertFree(before.project, input.name);
      const changes = changesOf(before, input);
      const after = { ...before, ...changes };
      await this.#parts.memory.assertIdles(after);
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
    return sandboxView(record, this.#parts.state.forwards.ofSandbox(record.id));
  }

  /** A size that was asked for is a promise; the one of the settings is advice where the engine can hold none. */
  #assertHeld(diskMb: number | undefined): void {
    const { disks } = this.#parts;
    if (diskMb === undefined || disks.holdsSizes) return;
    throw new CoppiceError('unsupported', `the engine ${disks.engine} cannot hold a disk to ${diskMb} MiB`, {
      hint: 'Leave the size of the disk out. `coppice doctor` says why the engine is not btrfs.',
    });
  }

  async #checkedPlan(input: NamedInput, image: ImageRef): Promise<SandboxPlan> {
    const plan = this.#parts.planner.plan(input, image);
    await this.#parts.memory.assertIdles(plan);
    return plan;
  }

  async #createFrom(input: NamedInput, from: string, options: CallOptions): Promise<CreatedSandbox> {
    const { finder, locks } = this.#parts;
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
      const memory = this.#parts.memory.goesAlong(snapshot, input.driver);
      const { shape } = snapshot;
      const image = { id: snapshot.imageId, name: snapshot.imageName };
      const plan = await this.#checkedPlan(
        {
          ...input,
          driver: input.driver ?? snapshot.driver,
          ...shapeView(shapeFrom(input, shape)),
          env: { ...shape.env, ...input.env },
        },
        image,
      );
      const lineage = { parentSnapshotId: id, parentSandboxId: snapshot.sandboxId, baseSnapshotId: id };
      return this.#creator.create(
        { ...plan, ...lineage },
        { growth: { snapshot, memory }, caller: options.signal },
      );
    });
  }

  /** What creation would refuse too. */
  #checkLimits(before: SandboxRecord, after: SandboxRecord): void {
    assertEnvironment(after.env);
    this.#parts.quotas.assertRoom(after.owner, {
      sandboxes: 0,
      memoryMb: after.memoryMb - before.memoryMb,
      diskMb: after.diskMb - before.diskMb,
    });
    const addedMb = after.memoryMb - before.memoryMb;
    if (before.state === 'running' && addedMb > 0)
      assertMemory(this.#parts.state.sandboxes.sums().memoryMb, addedMb, this.#config.limits.total_memory_mb);
  }

  async #usage(id: string): Promise<SandboxDetail['usage']> {
    const machine = this.#parts.machines.get(id);
    const [running, disk] = await Promise.all([
      machine?.usage().catch(() => undefined),
      this.#parts.disks.diskUsage(id).catch(() => undefined),
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
    const snapshot = this.#parts.finder.findSnapshot(ref);
    return new Set([snapshot?.id ?? this.#parts.finder.find(ref)?.id ?? ref]);
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
    ...shapeFrom({ ...input, env }, record),
    name: input.name ?? record.name,
    lifetimeWarned: input.max_lifetime_s === undefined ? record.lifetimeWarned : false,
  };
}
