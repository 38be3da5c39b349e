import { CoppiceError, type Merged } from '@coppice/protocol';
import type { Intent } from '../db/intent-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { Core } from './core.ts';
import type { SnapshotSizer } from './snapshot-sizer.ts';
import type { SnapshotTaker } from './snapshot-taker.ts';
import type { TreeAccess } from './tree-access.ts';

export interface MergeServiceParts {
  readonly core: Core;
  readonly trees: TreeAccess;
  readonly taker: SnapshotTaker;
  readonly sizer: SnapshotSizer;
}

/** Brings what changed in one sandbox since the common ancestor into another, three-way. */
export class MergeService {
  readonly #core: Core;

  constructor(parts: MergeServiceParts) {
    this.#core = parts.core;
  }

  async merge(intoRef: string, input: { from: string }): Promise<Merged> {
    const into = this.#core.finder.get(intoRef);
    throw new CoppiceError('unsupported', `${input.from} cannot be merged into ${into.name} yet`);
  }

  async redo(into: SandboxRecord, _intent: Intent): Promise<void> {
    this.#core.journal.finish(into.id, () => {});
  }
}
