import { CoppiceError } from '@coppice/protocol';
import type { LayeredTree, MergeConflict, MergePlan, TreeChange } from '../layered-tree.ts';
import type { PoolCalls } from '../native/pool-server.ts';
import { type CompareOptions, compareNodes, compareTrees, type NodeChange } from './compare-trees.ts';
import { toTreeChange } from './diff-trees.ts';
import { comparePaths, isBelow } from './path-order.ts';
import { Turns } from './turns.ts';

/** All of a plan is in memory at once, and a sandbox decides how many paths it names and how long they are. */
const mostPaths = 1_000_000;
const mostChars = 128 * 1024 ** 2;

/** Ends of connections and of pipes belong to the processes that made them: they are not carried over. */
const isCarried = (change: NodeChange): boolean => {
  const kind = change.after?.entry.kind;
  return kind !== 'socket' && kind !== 'fifo' && kind !== 'device';
};

const dropsDirectory = ({ before, after }: NodeChange): boolean =>
  before?.entry.kind === 'directory' && after?.entry.kind !== 'directory';

/** What files take on a disk; one with several names is counted once. */
class ContentSizes {
  readonly #seen = new Set<string>();

  of({ change, after }: NodeChange): number {
    if (after?.entry.kind !== 'file' || change === 'mode') return 0;
    if (after.entry.links > 1) {
      const identity = `${after.entry.inode} ${after.layerDir}`;
      if (this.#seen.has(identity)) return 0;
      this.#seen.add(identity);
    }
    return after.entry.allocatedBytes;
  }
}

interface PlannedPath {
  readonly change: TreeChange;
  readonly bytes: number;
  /** What our side did, where the two clash. */
  clash: TreeChange['change'] | undefined;
}

interface DroppedDirectory {
  readonly path: string;
  readonly planned: PlannedPath;
}

/** The changes of both sides as they come, in the order of their paths. */
class Planner {
  readonly #server: PoolCalls;
  readonly #sizes = new ContentSizes();
  readonly #planned: PlannedPath[] = [];
  readonly #skipped: string[] = [];
  /** The last path that ours made something else than a directory of, which nothing can be written below. */
  #blocker: NodeChange | undefined;
  /** Directories on the way here that theirs did away with, the innermost last. */
  #dropped: DroppedDirectory[] = [];
  #chars = 0;

  constructor(server: PoolCalls) {
    this.#server = server;
  }

  ours(change: NodeChange): void {
    const { path, after } = change;
    if (after !== undefined) for (const { planned } of this.#droppedAbove(path)) planned.clash ??= 'modified';
    if (after?.entry.kind !== 'directory' && !this.#isBlocked(path)) this.#blocker = change;
  }

  theirs(change: NodeChange): void {
    if (!this.#isKept(change)) return;
    const blocked = this.#isBlocked(change.path) ? this.#blocker?.change : undefined;
    const planned = this.#add(change, blocked);
    if (blocked === undefined && dropsDirectory(change))
      this.#dropped = [...this.#droppedAbove(change.path), { path: change.path, planned }];
  }

  async both(ourChange: NodeChange, theirChange: NodeChange): Promise<void> {
    this.ours(ourChange);
    if (!this.#isKept(theirChange)) return;
    const difference = await compareNodes(this.#server, ourChange.after, theirChange.after);
    if (difference !== undefined) this.#add(theirChange, ourChange.change);
  }

  finish(): MergePlan {
    const changes: TreeChange[] = [];
    const conflicts: MergeConflict[] = [];
    let changedBytes = 0;
    let conflictBytes = 0;
    for (const { change, bytes, clash } of this.#planned) {
      if (clash === undefined) {
        changes.push(change);
        changedBytes += bytes;
      } else {
        conflicts.push({ path: change.path, ours: clash, theirs: change.change });
        conflictBytes += bytes;
      }
    }
    return { changes, conflicts, skipped: this.#skipped, changedBytes, conflictBytes };
  }

  #isKept(change: NodeChange): boolean {
    this.#chars += change.path.length;
    if (this.#planned.length + this.#skipped.length >= mostPaths || this.#chars > mostChars)
      throw new CoppiceError(
        'too_large',
        `The merge concerns more than ${mostPaths} paths, or very long ones.`,
        {
          hint: 'Pack what is generated or downloaded into archives, or remove it on both sides, and merge then.',
        },
      );
    if (isCarried(change)) return true;
    this.#skipped.push(`/${change.path}`);
    return false;
  }

  #add(change: NodeChange, clash: TreeChange['change'] | undefined): PlannedPath {
    const planned = { change: toTreeChange(change), bytes: this.#sizes.of(change), clash };
    this.#planned.push(planned);
    return planned;
  }

  #isBlocked(path: string): boolean {
    return this.#blocker !== undefined && isBelow(path, this.#blocker.path);
  }

  #droppedAbove(path: string): DroppedDirectory[] {
    return this.#dropped.filter((dropped) => isBelow(path, dropped.path));
  }
}

export interface PlanMergeOptions extends CompareOptions {
  /** Which changes of theirs are brought over; all unless told. Paths are absolute, as seen inside. */
  readonly carries?: (path: string) => boolean;
  /** Which changes of ours count as such; all unless told. */
  readonly heeds?: (path: string) => boolean;
}

const all = (): boolean => true;

async function* only(
  changes: AsyncGenerator<NodeChange>,
  isMeant: (path: string) => boolean,
): AsyncGenerator<NodeChange> {
  for await (const change of changes) if (isMeant(`/${change.path}`)) yield change;
}

/**
 * What of the changes from `base` to `theirs` is to be done to `ours`. A path that both sides changed, differently, is a
 * conflict; so is a change below a directory that the other side removed or replaced. Nothing is written.
 */
export const planMerge = async (
  server: PoolCalls,
  base: LayeredTree,
  ours: LayeredTree,
  theirs: LayeredTree,
  { carries = all, heeds = all, ...options }: PlanMergeOptions = {},
): Promise<MergePlan> => {
  const planner = new Planner(server);
  const turns = new Turns();
  const ourChanges = only(compareTrees(server, base, ours, options), heeds);
  const theirChanges = only(compareTrees(server, base, theirs, options), carries);
  let [our, their] = await Promise.all([ourChanges.next(), theirChanges.next()]);
  while (!their.done) {
    await turns.step();
    const order = our.done ? 1 : comparePaths(our.value.path, their.value.path);
    if (order < 0) {
      planner.ours(our.value);
      our = await ourChanges.next();
    } else if (order > 0) {
      planner.theirs(their.value);
      their = await theirChanges.next();
    } else {
      await planner.both(our.value, their.value);
      [our, their] = await Promise.all([ourChanges.next(), theirChanges.next()]);
    }
  }
  // What theirs did away with may still be where ours changed something.
  for (; !our.done; our = await ourChanges.next()) {
    await turns.step();
    planner.ours(our.value);
  }
  return planner.finish();
};
