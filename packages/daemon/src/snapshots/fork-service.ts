import type { DiskStore } from '@coppice/disks';
import {
  CoppiceError,
  type CreatedSandbox,
  type Forked,
  type forkSandboxSchema,
  type forkSnapshotSchema,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { LongWork } from '../journal/long-work.ts';
import { allEndings, endingsOfCopy } from '../journal/long-work.ts';
import type { SandboxCreator } from '../sandboxes/sandbox-creator.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { hostnameOf, type SandboxNames } from '../sandboxes/sandbox-names.ts';
import type { SandboxPlan } from '../sandboxes/sandbox-plan.ts';
import { mountedIn } from '../sandboxes/views.ts';
import type { CallOptions } from '../services.ts';
import type { MemoryPolicy } from './memory/memory-policy.ts';
import type { SnapshotService } from './snapshot-service.ts';
import type { SnapshotSizer } from './snapshot-sizer.ts';
import type { SnapshotTaker } from './snapshot-taker.ts';

type ForkInput = z.output<typeof forkSnapshotSchema>;

export interface ForkServiceParts {
  readonly memory: MemoryPolicy;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly disks: DiskStore;
  readonly work: LongWork;
  readonly creator: SandboxCreator;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
  readonly snapshots: SnapshotService;
  readonly names: SandboxNames;
  readonly destroy: (sandboxId: string) => Promise<unknown>;
}

/** Grows new sandboxes from a snapshot; of a live sandbox it takes one first. */
export class ForkService {
  readonly #parts: ForkServiceParts;

  constructor(parts: ForkServiceParts) {
    this.#parts = parts;
  }

  async forkSnapshot(snapshotRef: string, input: ForkInput, options: CallOptions = {}): Promise<Forked> {
    const { finder } = this.#parts;
    const snapshot = finder.snapshot(snapshotRef);
    return this.#withNames(snapshot.project, snapshot.sandboxName, input, (names) =>
      this.#grow(snapshot.id, names, input, options),
    );
  }

  async forkSandbox(
    ref: string,
    input: z.output<typeof forkSandboxSchema>,
    options: CallOptions = {},
  ): Promise<Forked> {
    const source = this.#parts.finder.get(ref);
    return this.#withNames(source.project, source.name, input, (names) =>
      this.#forkNamed(source, names, input, options),
    );
  }

  async #forkNamed(
    source: SandboxRecord,
    names: string[],
    input: z.output<typeof forkSandboxSchema>,
    options: CallOptions,
  ): Promise<Forked> {
    const { taker, sizer } = this.#parts;
    if (input.snapshot !== undefined) {
      if (input.memory)
        throw new CoppiceError(
          'invalid_argument',
          'memory goes with a fork from now; a snapshot has its own, or none',
        );
      return this.#grow(this.#parts.finder.snapshot(input.snapshot, source.id).id, names, input, options);
    }
    const request = {
      note: `taken to fork ${source.name}`,
      tags: ['fork'],
      memory: input.memory,
      automatic: true,
      by: 'admin' as const,
    };
    const { id: sandboxId } = source;
    const snapshot = await this.#parts.work.run(
      {
        sandboxId,
        caller: options.signal,
        endsFor: input.memory ? allEndings : endingsOfCopy(this.#parts.disks),
      },
      (_, giveUp) =>
        this.#parts.locks.exclusive(sandboxId, () =>
          taker.take(this.#parts.finder.get(sandboxId), request, giveUp),
        ),
    );
    sizer.add(snapshot.id);
    const grown = await this.#grow(snapshot.id, names, input, options);
    return { ...grown, left_out: mountedIn(source) };
  }

  async #grow(snapshotId: string, names: string[], input: ForkInput, options: CallOptions): Promise<Forked> {
    const { creator, snapshots, locks } = this.#parts;
    let forked = 0;
    try {
      const outcomes = await locks.shared(snapshotId, async () => {
        const snapshot = this.#parts.finder.snapshot(snapshotId);
        await this.#parts.memory.assertFits(snapshot);
        const memory = snapshot.memoryBytes !== null;
        const outcomes = await Promise.allSettled(
          names.map(async (name) => {
            const fork = await creator.create(planOf(snapshot, name, input, options), {
              growth: { snapshot, memory },
              caller: options.signal,
            });
            forked += 1;
            options.progress?.({ message: `grew ${name}`, fraction: forked / names.length });
            return fork;
          }),
        );
        return outcomes;
      });
      // Those that were there already when their caller went away would be known to nobody.
      if (options.signal?.aborted)
        for (const outcome of outcomes)
          if (outcome.status === 'fulfilled') await this.#parts.destroy(outcome.value.id);
      options.signal?.throwIfAborted();
      return collect(snapshotId, names, outcomes);
    } finally {
      // Where none came to be, or one that was there before went meanwhile.
      await snapshots.prune(snapshotId);
    }
  }

  /** Chosen before anything is made, so that a name that is taken costs nothing. */
  async #withNames<T>(
    project: string,
    sourceName: string,
    input: ForkInput,
    work: (names: string[]) => Promise<T>,
  ): Promise<T> {
    const { names } = this.#parts;
    if (input.name !== undefined && (input.count > 1 || input.name_prefix !== undefined))
      throw new CoppiceError('invalid_argument', 'name is for one fork; give name_prefix for several', {
        hint: 'Names are then prefix-1, prefix-2 and so on: `coppice fork --count 2 --prefix way`.',
      });
    if (input.name === undefined && input.name_prefix === undefined)
      return names.withNumbered(project, `${sourceName.slice(0, 50)}-fork`, input.count, work);
    const given =
      input.name !== undefined
        ? [input.name]
        : Array.from({ length: input.count }, (_, index) => `${input.name_prefix}-${index + 1}`);
    for (const name of given) names.assertFree(project, name);
    return work(given);
  }
}

/** Policy, limits and environment carry over; name, hostname, address, token and disk are its own. */
function planOf(
  snapshot: SnapshotRecord,
  name: string,
  input: ForkInput,
  { owner = null, runId = null }: { owner?: string | null | undefined; runId?: string | null | undefined },
): SandboxPlan {
  const { shape } = snapshot;
  return {
    ...shape,
    name,
    project: snapshot.project,
    owner,
    runId,
    hostname: hostnameOf(name),
    imageId: snapshot.imageId,
    imageName: snapshot.imageName,
    driver: snapshot.driver,
    env: { ...shape.env, ...input.env },
    labels: { ...shape.labels, ...input.labels },
    mounts: [],
    parentSnapshotId: snapshot.id,
    parentSandboxId: snapshot.sandboxId,
    baseSnapshotId: snapshot.id,
  };
}

function collect(
  snapshotId: string,
  names: readonly string[],
  outcomes: PromiseSettledResult<CreatedSandbox>[],
): Forked {
  const forks = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failures = outcomes.flatMap((outcome, index) => {
    if (outcome.status === 'fulfilled') return [];
    const error = outcome.reason as Error;
    const code = error instanceof CoppiceError ? error.code : 'internal';
    return [{ index, name: names[index]!, code, message: error.message }];
  });
  const first = outcomes.find((outcome) => outcome.status === 'rejected');
  if (forks.length === 0 && first !== undefined) throw first.reason;
  return { snapshot_id: snapshotId, forks, failures, left_out: [] };
}
