import type { LineageNode } from '@coppice/protocol';

/** Many sandboxes that grew from one point and have nothing of their own, as one row. */
export interface Group {
  readonly kind: 'group';
  readonly id: string;
  readonly from: string | null;
  readonly members: readonly LineageNode[];
  readonly created_at: string;
}

export type Item = LineageNode | Group;

/** What it grew from, what was merged into it, or what it was before it was restored. */
type Edge = 'grown' | 'merge' | 'restore';

export interface Row {
  readonly item: Item;
  /** The lane of its dot. */
  readonly lane: number;
  /** Lanes that go on from above to below. */
  readonly through: readonly number[];
  /** Whether its lane comes from above. */
  readonly isAwaited: boolean;
  /** Lanes below that begin at the dot; merges and what a restore left behind are drawn in their own ways. */
  readonly outOf: readonly { readonly lane: number; readonly edge: Edge }[];
  readonly lanes: number;
}

/** Lanes further to the right are drawn as one. */
export const lanesShown = 14;

/** From how many on siblings become one row. */
const foldFrom = 16;

/** What stands on each node: what grew from it, and what took it in. */
export const standingOn = (nodes: readonly LineageNode[]): ReadonlyMap<string, readonly LineageNode[]> => {
  const found = new Map<string, LineageNode[]>();
  for (const node of nodes)
    for (const below of new Set([node.grown_from, ...node.merged]))
      if (below !== null) found.set(below, [...(found.get(below) ?? []), node]);
  return found;
};

/** Without the snapshots that Coppice took for itself, but for those that were merged or that keep what a restore replaced: what grew from one grew from what that grew from. */
const withoutAutomatic = (nodes: readonly LineageNode[]): LineageNode[] => {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const stays = new Set(nodes.flatMap(({ merged, restored }) => [...merged, restored?.left ?? '']));
  const isShown = ({ automatic, id }: LineageNode): boolean => !automatic || stays.has(id);
  const visible = (id: string | null): string | null => {
    for (let at = id, steps = 0; at !== null && steps < nodes.length; steps += 1) {
      const node = byId.get(at);
      if (node === undefined) return null;
      if (isShown(node)) return at;
      at = node.grown_from;
    }
    return null;
  };
  return nodes.filter(isShown).map((node) => {
    const grown_from = visible(node.grown_from);
    const merged = node.merged.map(visible).filter((id): id is string => id !== null && id !== grown_from);
    return { ...node, grown_from, merged: [...new Set(merged)] };
  });
};

export interface GraphOptions {
  readonly showAutomatic: boolean;
  /** Groups that are shown member by member, by id. */
  readonly open: ReadonlySet<string>;
}

const fold = (nodes: readonly LineageNode[], open: ReadonlySet<string>): Item[] => {
  const owners = new Set(nodes.filter(({ kind }) => kind === 'snapshot').map(({ parent }) => parent));
  const bySource = Map.groupBy(
    nodes.filter(
      ({ kind, id, merged, restored }) =>
        kind === 'sandbox' && !owners.has(id) && merged.length === 0 && restored === null,
    ),
    ({ grown_from }) => grown_from,
  );
  const hidden = new Set<string>();
  const groups: Group[] = [];
  for (const [from, members] of bySource) {
    const id = `group ${from}`;
    if (members.length < foldFrom || open.has(id)) continue;
    for (const member of members) hidden.add(member.id);
    const newest = members.reduce((a, b) => (a.created_at > b.created_at ? a : b));
    groups.push({ kind: 'group', id, from, members, created_at: newest.created_at });
  }
  return [...nodes.filter(({ id }) => !hidden.has(id)), ...groups];
};

const parentsOf = (item: Item): { readonly id: string; readonly edge: Edge }[] => {
  const grown = (id: string | null) => (id === null ? [] : [{ id, edge: 'grown' as const }]);
  if (item.kind === 'group') return grown(item.from);
  const left = item.restored?.left ?? null;
  return [
    ...grown(item.grown_from),
    ...item.merged.map((id) => ({ id, edge: 'merge' as const })),
    ...(left === null || left === item.grown_from ? [] : [{ id: left, edge: 'restore' as const }]),
  ];
};

/** The newest first, and everything above what it grew from. */
const inOrder = (items: readonly Item[]): Item[] => {
  const byId = new Map(items.map((item) => [item.id, item]));
  const keys = new Map<string, string>();
  const keyOf = (item: Item): string => {
    const known = keys.get(item.id);
    if (known !== undefined) return known;
    // A sandbox is as new as what it stands on now, which it may have been restored to or merged on.
    const below = parentsOf(item)
      .map(({ id }) => byId.get(id)?.created_at ?? '')
      .concat(item.created_at);
    const rank = item.kind === 'image' ? '0' : item.kind === 'snapshot' ? '1' : '2';
    const key = `${item.kind === 'image' ? '0' : '1'} ${below.sort().at(-1)} ${rank} ${item.id}`;
    keys.set(item.id, key);
    return key;
  };
  return items.toSorted((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1));
};

/**
 * Lanes as in a graph of commits: each is on its way down to one node. What has the same source shares a lane, so that their number
 * grows with what branches and not with how much there is.
 */
export const layOut = (nodes: readonly LineageNode[], { showAutomatic, open }: GraphOptions): Row[] => {
  const shown = showAutomatic ? nodes : withoutAutomatic(nodes);
  const items = inOrder(fold(shown, open));
  const here = new Set(items.map(({ id }) => id));
  const rows: Row[] = [];
  /** What each lane is on its way to, and the lane of what is awaited; one lane for each. */
  const lanes: (string | undefined)[] = [];
  const laneOf = new Map<string, number>();
  const occupied = (): number => {
    while (lanes.length > 0 && lanes.at(-1) === undefined) lanes.pop();
    return lanes.length;
  };
  const freeLane = (from: number): number => {
    if (laneOf.size === lanes.length) return Math.max(lanes.length, from);
    const found = lanes.findIndex((id, lane) => id === undefined && lane >= from);
    return found < 0 ? Math.max(lanes.length, from) : found;
  };
  for (const item of items) {
    const awaited = laneOf.get(item.id);
    const lane = awaited ?? freeLane(0);
    const before = Math.max(lanes.length, lane + 1);
    laneOf.delete(item.id);
    if (awaited !== undefined) lanes[awaited] = undefined;
    const through = lanes.slice(0, lanesShown).flatMap((id, at) => (id === undefined ? [] : [at]));
    const outOf: { lane: number; edge: Edge }[] = [];
    for (const { id, edge } of parentsOf(item)) {
      if (!here.has(id)) continue;
      let at = laneOf.get(id);
      if (at === undefined) {
        const isGrown = edge === 'grown';
        at = isGrown && lanes[lane] === undefined ? lane : freeLane(isGrown ? 0 : lane + 1);
        while (lanes.length < at) lanes.push(undefined);
        lanes[at] = id;
        laneOf.set(id, at);
      }
      outOf.push({ lane: at, edge });
    }
    rows.push({
      item,
      lane,
      through,
      isAwaited: awaited !== undefined,
      outOf,
      lanes: Math.max(before, occupied()),
    });
  }
  return rows;
};
