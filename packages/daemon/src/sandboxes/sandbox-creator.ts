import { randomBytes } from 'node:crypto';
import type { DiskStore } from '@coppice/disks';
import type { IdSource } from '@coppice/protocol';
import { CoppiceError, type CreatedSandbox, environmentSchema } from '@coppice/protocol';
import type { Machine, Network } from '@coppice/runtime';
import type { Config } from '../config/config.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { TokenRecord } from '../db/token-table.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import { UndoStack } from '../journal/undo-stack.ts';
import type { MemoryPolicy } from '../snapshots/memory/memory-policy.ts';
import type { Quotas } from '../tokens/quotas.ts';
import type { TokenService } from '../tokens/token-service.ts';
import type { Activity } from './activity.ts';
import type { MachineStarter } from './machine-starter.ts';
import { diskBytes } from './machine-starter.ts';
import type { Machines } from './machines.ts';
import { assertNameFree } from './sandbox-names.ts';
import type { SandboxPlan } from './sandbox-plan.ts';
import { sandboxView } from './views.ts';
import type { WarmMachine, WarmPool } from './warm-pool.ts';

/** Grow it from this snapshot instead of from the bare image. */
export interface Growth {
  readonly snapshot: SnapshotRecord;
  /** With the processes that the checkpoint kept. */
  readonly memory: boolean;
}

export interface CreateOptions {
  readonly growth?: Growth;
  /** Whoever asked for it. If they go away before it is there, it is taken back. */
  readonly caller?: AbortSignal | undefined;
}

export interface SandboxCreatorParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly work: LongWork;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly disks: DiskStore;
  readonly network: Network;
  readonly activity: Activity;
  readonly tokens: TokenService;
  readonly ids: IdSource;
  readonly now: () => number;
  readonly log: Log;
  /** Settles when recovery has swept: before that nothing new is made, as it would be swept too. */
  readonly swept: Promise<void>;
  readonly memory: MemoryPolicy;
  readonly limits: Config['limits'];
  readonly quotas: Quotas;
  readonly pool: WarmPool;
}

/** Makes sandboxes: from the image, from a snapshot, or out of the warm pool. All of it, or nothing is left. */
export class SandboxCreator {
  readonly #parts: SandboxCreatorParts;
  readonly #limits: Config['limits'];
  readonly #pool: WarmPool;

  constructor(parts: SandboxCreatorParts) {
    this.#parts = parts;
    this.#limits = parts.limits;
    this.#pool = parts.pool;
  }

  /** A name that costs nothing: a machine that is ready has it already. */
  get warmName(): string | undefined {
    return this.#pool.nextName;
  }

  /** The caller holds the snapshot's lock where there is one. */
  async create(plan: SandboxPlan, { growth, caller }: CreateOptions = {}): Promise<CreatedSandbox> {
    const beganMs = performance.now();
    assertEnvironment(plan.env);
    await this.#parts.swept;
    caller?.throwIfAborted();
    this.#admit(plan);
    const warm = growth === undefined ? this.#pool.take(plan) : undefined;
    if (warm !== undefined) return this.#assign(plan, warm, beganMs, caller);
    const { ids, locks, work } = this.#parts;
    const id = ids.next('sandbox');
    return work.run({ sandboxId: id, caller, endsFor: ['destroy', 'close'] }, (signal) =>
      locks.exclusive(id, () => this.#make(id, plan, growth, beganMs, signal)),
    );
  }

  async #make(
    id: string,
    plan: SandboxPlan,
    growth: Growth | undefined,
    beganMs: number,
    signal: AbortSignal,
  ): Promise<CreatedSandbox> {
    const { journal, disks, starter, state, tokens, log } = this.#parts;
    const draft = this.#record(id, plan, 'creating');
    const token = tokens.make(`sandbox-${id}`, `sandbox:${id}`);
    const undo = new UndoStack();
    // The pool makes the disk while this is written down: one without a record is swept by the next daemon.
    const making =
      growth === undefined
        ? disks.createDisk(id, diskBytes(plan))
        : disks.cloneDisk(growth.snapshot.id, id, diskBytes(plan));
    undo.push(`disk of ${id}`, async () => {
      await Promise.allSettled([making]);
      await disks.removeDisk(id);
    });
    try {
      journal.begin(id, { kind: 'create' }, () => {
        this.#admit(plan);
        state.sandboxes.insert(draft);
        state.tokens.insert(token.record);
      });
      undo.push(`record of ${id}`, async () => this.forget(draft));
      journal.step('create.recorded');
      const { machine, address } = await starter.start(draft, {
        disk: making.then(() => journal.step('create.disk-made')),
        memoryDir: growth?.memory ? disks.memoryDir(growth.snapshot.id) : undefined,
        onBooted: () => journal.step('create.machine-started'),
        signal,
      });
      undo.push(`machine of ${id}`, async () => {
        await machine.stop(0);
        await this.#parts.network.release(id);
      });
      journal.step('create.network-applied');
      if (growth?.memory) await this.#announce(draft, machine);
      await journal.hold('create.started', signal);
      signal.throwIfAborted();
      return this.#commit({ ...draft, address }, machine, token, { beganMs });
    } catch (error) {
      await undo.run(log);
      throw error;
    }
  }

  /**
   * The machine runs already and nobody knows it yet: one transaction makes it a sandbox. Before that recovery sweeps it as
   * what belongs to nobody; after it, it is there.
   */
  async #assign(
    plan: SandboxPlan,
    warm: WarmMachine,
    beganMs: number,
    caller: AbortSignal | undefined,
  ): Promise<CreatedSandbox> {
    const { id, machine } = warm;
    const { starter, tokens, state } = this.#parts;
    const draft = this.#record(id, plan, 'running');
    try {
      const [address] = await Promise.all([
        starter.applyPolicy(draft, machine),
        this.#pool.rename(warm, draft.hostname),
      ]);
      caller?.throwIfAborted();
      const token = tokens.make(`sandbox-${id}`, `sandbox:${id}`);
      const insert = () => {
        this.#admit(plan);
        state.sandboxes.insert(draft);
        state.tokens.insert(token.record);
      };
      return this.#commit({ ...draft, address }, machine, token, { beganMs, insert });
    } catch (error) {
      await this.#pool.discard(warm);
      throw error;
    }
  }

  #commit(
    draft: SandboxRecord,
    machine: Machine,
    token: { record: TokenRecord; secret: string },
    { beganMs, insert }: { beganMs: number; insert?: () => void },
  ): CreatedSandbox {
    const { journal, state, machines, activity, tokens, memory, now } = this.#parts;
    const startedAtMs = now();
    const record: SandboxRecord = { ...draft, state: 'running', startedAtMs, activeAtMs: startedAtMs };
    const fromPool = insert !== undefined;
    const bootMs = Math.round((performance.now() - beganMs) * 1000) / 1000;
    journal.finish(record.id, (emit) => {
      insert?.();
      const { address } = record;
      state.sandboxes.update(record.id, { state: 'running', address, startedAtMs, activeAtMs: startedAtMs });
      emit('sandbox.created', record.id, {
        name: record.name,
        image: record.imageName,
        driver: record.driver,
        parent_snapshot_id: record.parentSnapshotId,
        boot_ms: bootMs,
        from_pool: fromPool,
      });
    });
    machines.add(record.id, machine);
    activity.touch(record.id);
    tokens.remember(token.record);
    journal.step('create.committed');
    return {
      ...sandboxView(record, []),
      token: token.secret,
      memory_notice: memory.notice(record.driver),
      boot_ms: bootMs,
      from_pool: fromPool,
    };
  }

  /** Takes back the record of a sandbox that did not come to be. */
  forget(record: SandboxRecord): void {
    const { journal, state } = this.#parts;
    journal.finish(record.id, (emit) => {
      state.tokens.deleteScope(`sandbox:${record.id}`);
      state.sandboxes.delete(record.id);
      emit('sandbox.create_failed', record.id, { name: record.name });
    });
  }

  /** What must differ from its source does, before anyone is told of the fork. */
  async #announce(record: SandboxRecord, machine: Machine): Promise<void> {
    const { id: sandboxId, name, hostname } = record;
    await Promise.all([
      machine.setHostname?.(hostname) ?? machine.guest.setHostname(hostname),
      machine.guest.announceFork({ sandboxId, name, hostname, entropy: randomBytes(256) }),
    ]);
  }

  #record(id: string, plan: SandboxPlan, state: SandboxRecord['state']): SandboxRecord {
    const nowMs = this.#parts.now();
    return {
      ...plan,
      id,
      state,
      failure: null,
      address: null,
      pauseKeep: null,
      createdAtMs: nowMs,
      startedAtMs: null,
      activeAtMs: nowMs,
      lifetimeWarned: false,
    };
  }

  #admit(plan: SandboxPlan): void {
    const { max_sandboxes: maximum, total_memory_mb: totalMemoryMb } = this.#limits;
    const { count, memoryMb } = this.#parts.state.sandboxes.sums();
    if (count >= maximum) {
      throw new CoppiceError('limit_reached', `there are ${count} sandboxes, and the limit is ${maximum}`, {
        hint: 'Destroy some, or raise limits.max_sandboxes in config.json.',
        details: { limit: 'max_sandboxes', maximum },
      });
    }
    assertMemory(memoryMb, plan.memoryMb, totalMemoryMb);
    this.#parts.quotas.assertRoom(plan.owner, {
      sandboxes: 1,
      memoryMb: plan.memoryMb,
      diskMb: plan.diskMb,
    });
    assertNameFree(this.#parts.state, plan.project, plan.name);
  }
}

/** Of what it is to have in all: what a snapshot or an earlier change brought, and what is asked for now. */
export function assertEnvironment(env: Readonly<Record<string, string>>): void {
  const problem = environmentSchema.safeParse(env).error?.issues[0];
  if (problem === undefined) return;
  throw new CoppiceError('invalid_argument', `its environment would be refused: ${problem.message}`, {
    hint: 'Take variables away: give them null. Put what is large into a file.',
  });
}

export function assertMemory(usedMb: number, wantedMb: number, totalMb: number | null): void {
  if (totalMb === null || usedMb + wantedMb <= totalMb) return;
  throw new CoppiceError(
    'limit_reached',
    `running sandboxes are promised ${usedMb} MiB; ${wantedMb} more would pass the limit of ${totalMb}`,
    {
      hint: 'Stop or destroy some, ask for less memory, or raise limits.total_memory_mb in config.json.',
      details: { limit: 'total_memory_mb', maximum: totalMb },
    },
  );
}
