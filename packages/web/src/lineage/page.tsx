import type { LineageNode } from '@coppice/protocol';
import { useComputed, useSignal, useSignalEffect } from '@preact/signals';
import { actionsOf, ask, destroy } from '../app/actions.tsx';
import { useKeys } from '../app/keys.ts';
import { go, query, setQuery } from '../app/router.ts';
import { client, mayChange, noticeSignOut } from '../app/session.ts';
import { deleteSnapshot, forkSnapshot, keepSnapshot, restore } from '../app/snapshot-actions.ts';
import { generation, hrefOf, nameOf, sandboxOf } from '../app/store.ts';
import { bytes, count, plain } from '../app/text.ts';
import { Age, Cell, Copy, Failure, Header, Search, State, VirtualList } from '../app/ui.tsx';
import { type Group, type Item, lanesShown, layOut, type Row, standingOn } from './graph.ts';

const rowHeight = 30;
const laneWidth = 14;
const settleMs = 200;

const middle = (lane: number): number => 9 + Math.min(lane, lanesShown) * laneWidth;

const curve = (fromX: number, fromY: number, toX: number, toY: number): string => {
  const bend = (fromY + toY) / 2;
  return fromX === toX
    ? `M${fromX} ${fromY}V${toY}`
    : `M${fromX} ${fromY}C${fromX} ${bend} ${toX} ${bend} ${toX} ${toY}`;
};

/** The shape says what it is, its filling the state. */
const Dot = ({ item, x, y }: { item: Item; x: number; y: number }) => {
  if (item.kind === 'image') return <rect class="dot image" x={x - 4.5} y={y - 4.5} width="9" height="9" />;
  if (item.kind === 'group')
    return (
      <g class="dot group">
        <circle cx={x} cy={y} r="5" />
        <circle cx={x} cy={y} r="2" />
      </g>
    );
  if (item.kind === 'sandbox') return <circle class={`dot sandbox ${item.state}`} cx={x} cy={y} r="5" />;
  const r = item.automatic ? 3 : 4.5;
  return (
    <path
      class={`dot snapshot ${item.has_memory ? 'memory' : ''}`}
      d={`M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`}
    />
  );
};

const Lanes = ({ row, width }: { row: Row; width: number }) => {
  const y = rowHeight / 2;
  const x = middle(row.lane);
  return (
    <svg class="lanes" width={width} height={rowHeight} aria-hidden="true">
      {row.through.map((lane) => (
        <path key={lane} d={curve(middle(lane), 0, middle(lane), rowHeight)} />
      ))}
      {row.isAwaited && <path d={curve(x, 0, x, y)} />}
      {row.outOf.map(({ lane, edge }) => (
        <path key={`o${lane}${edge}`} class={edge} d={curve(x, y, middle(lane), rowHeight)} />
      ))}
      <Dot item={row.item} x={x} y={y} />
    </svg>
  );
};

const kindOf = (node: LineageNode): string =>
  node.kind !== 'snapshot'
    ? node.kind
    : node.has_memory
      ? 'checkpoint'
      : node.automatic
        ? 'automatic'
        : 'snapshot';

const groupText = ({ members }: Group): string => {
  const failed = members.filter(({ state }) => state === 'failed').length;
  const running = members.filter(({ state }) => state === 'running').length;
  return [
    count(members.length, 'fork'),
    ...(running > 0 ? [`${running} running`] : []),
    ...(failed > 0 ? [`${failed} failed`] : []),
  ].join(', ');
};

/** One that the page has not heard of yet has its name here. */
const labelOf = (node: LineageNode): string =>
  node.kind === 'sandbox' && sandboxOf(node.id) !== undefined ? nameOf(node.id) : node.name;

const refOfNode = (node: LineageNode): string => (node.kind === 'sandbox' ? nameOf(node.id) : node.id);

/** What can be done with the node that is chosen, and what stands on it. */
const Chosen = ({
  node,
  standing,
  nameOfNode,
}: {
  node: LineageNode;
  standing: readonly LineageNode[];
  nameOfNode: (id: string) => string;
}) => {
  const owner = node.kind === 'snapshot' && node.parent !== null ? sandboxOf(node.parent) : undefined;
  return (
    <aside aria-label="Chosen">
      <h2>{plain(labelOf(node))}</h2>
      <div class="actions">
        {node.kind === 'sandbox' && (
          <>
            <a class="button" href={hrefOf(node.id)}>
              Terminal
            </a>
            <a class="button" href={`${hrefOf(node.id)}?tab=files`}>
              Files
            </a>
            {actionsOf(node)
              .filter(({ title }) => title !== 'Destroy')
              .map(({ title, action }) => (
                <button type="button" key={title} onClick={() => ask(action)}>
                  {title}
                </button>
              ))}
          </>
        )}
        {node.kind === 'snapshot' && mayChange() && (
          <>
            <button type="button" onClick={() => ask(forkSnapshot(node))}>
              Fork
            </button>
            {owner !== undefined && (
              <button type="button" onClick={() => ask(restore(owner, node))}>
                Restore {plain(owner.name)}
              </button>
            )}
            {node.automatic && (
              <button type="button" onClick={() => ask(keepSnapshot(node))}>
                Keep
              </button>
            )}
          </>
        )}
        {node.kind !== 'image' && node.grown_from?.startsWith('sn_') && (
          <a
            class="button"
            href={`/compare?from=${node.grown_from}&to=${encodeURIComponent(refOfNode(node))}`}
          >
            Compare
          </a>
        )}
        {node.kind === 'sandbox' && mayChange() && (
          <button type="button" class="danger" onClick={() => ask(destroy(node))}>
            Destroy
          </button>
        )}
        {node.kind === 'snapshot' && mayChange() && (
          <button type="button" class="danger" onClick={() => ask(deleteSnapshot(node))}>
            Delete
          </button>
        )}
      </div>
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{kindOf(node)}</dd>
        {node.state !== null && (
          <>
            <dt>State</dt>
            <dd>
              <State of={node.state} />
            </dd>
          </>
        )}
        <dt>Age</dt>
        <dd>
          <Age at={node.created_at} />
        </dd>
        {node.restored !== null && (
          <>
            <dt>Restored</dt>
            <dd>
              to {plain(nameOfNode(node.restored.to))}, <Age at={node.restored.at} /> ago
              {node.restored.left !== null && (
                <div class="muted">{plain(nameOfNode(node.restored.left))} keeps what was there before</div>
              )}
            </dd>
          </>
        )}
        {node.referenced_bytes !== null && (
          <>
            <dt>Holds</dt>
            <dd>{bytes(node.referenced_bytes)}</dd>
            <dt>Alone</dt>
            <dd>{bytes(node.used_bytes)}</dd>
          </>
        )}
        {node.memory_bytes !== null && (
          <>
            <dt>Memory</dt>
            <dd>{bytes(node.memory_bytes)}</dd>
          </>
        )}
        <dt>Stands on it</dt>
        <dd>
          {standing.length === 0
            ? 'nothing'
            : standing.slice(0, 8).map(({ id, name }) => <div key={id}>{plain(name)}</div>)}
          {standing.length > 8 && <div class="muted">and {standing.length - 8} more</div>}
        </dd>
        <dt>Id</dt>
        <dd>
          <code>{node.id}</code> <Copy text={node.id} />
        </dd>
      </dl>
    </aside>
  );
};

const columns = [
  ['Grew from', 'graph'],
  ['Name'],
  ['Kind', 'wide'],
  ['State'],
  ['Holds', 'number wide'],
  ['Age', 'number'],
] as const;

export const Page = () => {
  const nodes = useSignal<readonly LineageNode[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const selected = useSignal(-1);
  const picked = useSignal<readonly string[]>([]);
  useSignalEffect(() => {
    void generation.value;
    const timer = setTimeout(
      () => {
        client()
          .lineage()
          .then(
            (found) => {
              nodes.value = found;
              failure.value = undefined;
            },
            (error: unknown) => {
              noticeSignOut(error);
              failure.value = error;
            },
          );
      },
      nodes.peek() === undefined ? 0 : settleMs,
    );
    return () => clearTimeout(timer);
  });
  const showAutomatic = query.value.get('automatic') === 'shown';
  // Of the address only what they are made of: laying out takes longer than looking for a word.
  const automatic = useComputed(() => query.value.get('automatic') === 'shown');
  const openGroups = useComputed(() => query.value.get('open') ?? '');
  const words = useComputed(() => (query.value.get('q') ?? '').toLowerCase());
  const all = useComputed(() => {
    const open = new Set(openGroups.value.split(',').map((from) => `group ${from}`));
    return layOut(nodes.value ?? [], { showAutomatic: automatic.value, open });
  });
  const rows = useComputed(() => {
    const wanted = words.value.split(/\s+/).filter(Boolean);
    if (wanted.length === 0) return all.value;
    return all.value.filter(({ item }) => {
      const text =
        item.kind === 'group'
          ? groupText(item)
          : `${item.name} ${item.id} ${kindOf(item)} ${item.state ?? ''}`;
      return wanted.every((word) => text.toLowerCase().includes(word));
    });
  });
  const standing = useComputed(() => standingOn(nodes.value ?? []));
  const names = useComputed(() => new Map((nodes.value ?? []).map((node) => [node.id, labelOf(node)])));
  const width = useComputed(
    () => middle(Math.max(0, ...rows.value.map(({ lanes }) => Math.min(lanes, lanesShown) - 1))) + 9,
  );
  const chosenItem = (): Item | undefined => rows.value[selected.value]?.item;
  const unfold = ({ from }: Group): void =>
    setQuery({ open: [query.value.get('open'), from].filter(Boolean).join(',') });
  const openIt = (item: Item | undefined): void => {
    if (item?.kind === 'group') unfold(item);
    else if (item?.kind === 'sandbox') go(hrefOf(item.id));
  };
  const pick = (item: Item | undefined): void => {
    if (item === undefined || item.kind === 'group' || item.kind === 'image') return;
    const ref = refOfNode(item);
    picked.value = picked.value.includes(ref)
      ? picked.value.filter((one) => one !== ref)
      : [...picked.value, ref].slice(-2);
  };
  const compare = (): void => {
    const [from, to] = picked.value;
    if (from !== undefined && to !== undefined)
      go(`/compare?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`);
  };
  const move = (step: number): void => {
    selected.value = Math.max(0, Math.min(rows.value.length - 1, selected.value + step));
  };
  const act = (key: string): void => {
    const item = chosenItem();
    if (item?.kind === 'snapshot' && key === 'f') ask(forkSnapshot(item));
    if (item?.kind !== 'sandbox') return;
    const found = actionsOf(item).find((action) => action.key === key);
    if (found !== undefined) ask(found.action);
  };
  useKeys(
    {
      j: { title: 'Next row', run: () => move(1) },
      k: { title: 'Row before', run: () => move(-1) },
      Enter: { title: 'Open', run: () => openIt(chosenItem()) },
      x: { title: 'Pick for a comparison', run: () => pick(chosenItem()) },
      d: { title: 'Compare the two that are picked', run: compare },
      f: { title: 'Fork', run: () => act('f') },
      s: { title: 'Snapshot', run: () => act('s') },
    },
    [],
  );
  const chosen = chosenItem();
  return (
    <>
      <div class="title">
        <h1>Lineage</h1>
        <span class="muted">{nodes.value !== undefined && count(nodes.value.length, 'node')}</span>
        {picked.value.length > 0 && (
          <span class="picked">
            {picked.value.map((ref) => (
              <span class="label" key={ref}>
                {plain(ref)}
              </span>
            ))}
          </span>
        )}
        <button type="button" disabled={picked.value.length < 2} onClick={compare}>
          Compare two <kbd>d</kbd>
        </button>
      </div>
      <Failure error={failure.value} />
      <div class="bar">
        <label>
          <input
            type="checkbox"
            checked={showAutomatic}
            onChange={(event) => setQuery({ automatic: event.currentTarget.checked ? 'shown' : '' })}
          />{' '}
          Snapshots that Coppice took for itself
        </label>
        <Search value={query.value.get('q') ?? ''} onInput={(q) => setQuery({ q })} />
      </div>
      <div class="split">
        <VirtualList
          label="Lineage"
          className="lineage-list"
          items={rows.value}
          rowHeight={rowHeight}
          keyOf={({ item }) => item.id}
          selected={selected}
          header={<Header columns={columns} />}
          style={{ '--graph': `${width.value}px` }}
          row={(row) => {
            const { item } = row;
            return (
              <>
                <Cell className="graph">
                  <Lanes row={row} width={width.value} />
                </Cell>
                {item.kind === 'group' ? (
                  <>
                    <Cell className="name">
                      <button type="button" class="link" onClick={() => unfold(item)}>
                        {groupText(item)}
                      </button>
                    </Cell>
                    <Cell className="muted wide">folded</Cell>
                    <Cell />
                    <Cell className="wide" />
                  </>
                ) : (
                  <>
                    <Cell className="name">
                      {item.kind === 'sandbox' ? (
                        <a href={hrefOf(item.id)}>{plain(labelOf(item))}</a>
                      ) : (
                        plain(item.name)
                      )}
                      {item.restored !== null && (
                        <span class="label restored">
                          restored to {plain(names.value.get(item.restored.to) ?? item.restored.to)}
                        </span>
                      )}
                      {picked.value.includes(refOfNode(item)) && <span class="label">picked</span>}
                    </Cell>
                    <Cell className="muted wide">{kindOf(item)}</Cell>
                    <Cell>{item.state !== null && <State of={item.state} />}</Cell>
                    <Cell className="number wide muted">
                      {item.kind === 'sandbox' ? '' : bytes(item.referenced_bytes)}
                    </Cell>
                  </>
                )}
                <Cell className="number">
                  <Age at={item.created_at} />
                </Cell>
              </>
            );
          }}
        />
        {chosen === undefined || chosen.kind === 'group' ? (
          <aside aria-label="Legend">
            <h3>Choose a row to act on it; x picks two to compare</h3>
            <ul class="legend">
              <Legend title="sandbox, running" item={{ kind: 'sandbox', state: 'running' }} />
              <Legend title="sandbox, asleep" item={{ kind: 'sandbox', state: 'paused' }} />
              <Legend title="sandbox, stopped" item={{ kind: 'sandbox', state: 'stopped' }} />
              <Legend title="sandbox, failed" item={{ kind: 'sandbox', state: 'failed' }} />
              <Legend title="snapshot" item={{ kind: 'snapshot' }} />
              <Legend title="checkpoint, with memory" item={{ kind: 'snapshot', has_memory: true }} />
              <Legend title="image" item={{ kind: 'image' }} />
            </ul>
            <p class="muted">
              A dashed line is a merge. A dotted line leads to what was there before a restore.
            </p>
          </aside>
        ) : (
          <Chosen
            node={chosen}
            standing={standing.value.get(chosen.id) ?? []}
            nameOfNode={(id) => names.value.get(id) ?? id}
          />
        )}
      </div>
    </>
  );
};

const Legend = ({ title, item }: { title: string; item: Partial<LineageNode> }) => (
  <li>
    <svg width="18" height="18" aria-hidden="true">
      <Dot item={{ automatic: false, has_memory: false, ...item } as LineageNode} x={9} y={9} />
    </svg>
    {title}
  </li>
);
