import { CoppiceError, defaultProject, splitReference } from '@coppice/protocol';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';

/** Finds what an id or a name refers to. */
export class SandboxFinder {
  readonly #state: State;

  constructor(state: State) {
    this.#state = state;
  }

  get(ref: string): SandboxRecord {
    const record = this.find(ref);
    if (record !== undefined) return record;
    throw new CoppiceError('not_found', `there is no sandbox ${ref}`, {
      hint: 'List them with `coppice ls`, or create one with `coppice create`.',
    });
  }

  /** By id, by `project/name`, or by its name in the default project. */
  find(ref: string): SandboxRecord | undefined {
    const byId = this.#state.sandboxes.byId(ref);
    if (byId !== undefined) return byId;
    const { project = defaultProject, rest } = splitReference(ref);
    return this.#state.sandboxes.byName(project, rest);
  }

  /** By id, or as `sandbox:name` or `project/sandbox:name`; a bare name only within the sandbox that the call is about. */
  snapshot(ref: string, withinSandboxId?: string): SnapshotRecord {
    const record = this.findSnapshot(ref, withinSandboxId);
    if (record !== undefined) return record;
    throw new CoppiceError('not_found', `there is no snapshot ${ref}`, {
      hint: 'List them with `coppice snapshots`; name one by its id or as sandbox:name.',
    });
  }

  findSnapshot(ref: string, withinSandboxId?: string): SnapshotRecord | undefined {
    const byId = this.#state.snapshots.byId(ref);
    if (byId !== undefined) return byId;
    if (withinSandboxId !== undefined) {
      const own = this.#state.snapshots.byName(withinSandboxId, ref);
      if (own !== undefined) return own;
    }
    const colon = ref.indexOf(':');
    if (colon < 0) return undefined;
    const sandboxRef = ref.slice(0, colon);
    const { project = defaultProject, rest: sandboxName } = splitReference(sandboxRef);
    const sandboxId = this.find(sandboxRef)?.id ?? sandboxRef;
    return (
      this.#state.snapshots.byName(sandboxId, ref.slice(colon + 1)) ??
      this.#ofGone(project, sandboxName, ref.slice(colon + 1))
    );
  }

  /** Snapshots outlive their sandbox and keep its name. */
  #ofGone(project: string, sandboxName: string, name: string): SnapshotRecord | undefined {
    const found = this.#state.snapshots
      .all()
      .filter(
        (snapshot) =>
          snapshot.project === project && snapshot.sandboxName === sandboxName && snapshot.name === name,
      );
    if (found.length <= 1) return found[0];
    throw new CoppiceError('ambiguous', `${sandboxName}:${name} names ${found.length} snapshots`, {
      details: { candidates: found.map((snapshot) => snapshot.id) },
      hint: `Use one of the ids: ${found.map((snapshot) => snapshot.id).join(', ')}.`,
    });
  }
}
