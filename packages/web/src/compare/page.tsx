import type { Change, Diff, Snapshot } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useKeys } from '../app/keys.ts';
import { query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { generation, refOf, sandboxes, sandboxOf } from '../app/store.ts';
import { bytes, count, plain, quoted } from '../app/text.ts';
import { Chips, Command, Failure } from '../app/ui.tsx';
import { DiffView } from './diff-view.tsx';
import { Merge } from './merge.tsx';
import { type Folder, treeOf } from './patch.ts';

const mostListed = 5_000;
const mark = { added: 'A', removed: 'D', modified: 'M', mode: 'm' } as const;

/** What the daemon takes: a sandbox by its id, which no project makes ambiguous; else as it was written. */
const idOf = (ref: string): string => sandboxOf(ref)?.id ?? ref;

const sizeOf = ({ size_before, size_after }: Change): string => {
  const grown = (size_after ?? 0) - (size_before ?? 0);
  return grown === 0 ? '' : `${grown > 0 ? '+' : '−'}${bytes(Math.abs(grown))}`;
};

const Files = ({
  folder,
  changes,
  chosen,
}: {
  folder: Folder;
  changes: ReadonlyMap<string, Change>;
  chosen: string;
}) => (
  <ul>
    {folder.folders.map((inner) => (
      <li key={inner.path}>
        <details open>
          <summary>
            <span class="mono">{plain(inner.name)}/</span> <span class="muted">{inner.count}</span>
          </summary>
          <Files folder={inner} changes={changes} chosen={chosen} />
        </details>
      </li>
    ))}
    {folder.files.map(({ name, path }) => {
      const change = changes.get(path)!;
      return (
        <li key={path}>
          <button
            type="button"
            class="file"
            aria-pressed={path === chosen}
            onClick={() => setQuery({ path })}
          >
            <span class={`mark ${change.change}`} title={change.change}>
              {mark[change.change]}
            </span>
            <span class="mono">
              {plain(name)}
              {change.kind === 'directory' && '/'}
            </span>
            <span class="muted number">{sizeOf(change)}</span>
          </button>
        </li>
      );
    })}
  </ul>
);

const Sides = ({ from, to }: { from: string; to: string }) => {
  const snapshots = useSignal<readonly Snapshot[]>([]);
  useSignalEffect(() => {
    void generation.value;
    client()
      .snapshots.list()
      .then((found) => {
        snapshots.value = found;
      }, noticeSignOut);
  });
  const choice = (name: 'from' | 'to', label: string, value: string) => (
    <label>
      <span>{label}</span>
      <input
        type="text"
        class="mono"
        list="states"
        value={value}
        placeholder="a sandbox or a snapshot"
        autocomplete="off"
        spellcheck={false}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value, path: '' })}
      />
    </label>
  );
  return (
    <div class="sides-choice">
      {choice('from', 'Before', from)}
      <button type="button" class="quiet" aria-label="Swap" onClick={() => setQuery({ from: to, to: from })}>
        ⇄
      </button>
      {choice('to', 'After', to)}
      <datalist id="states">
        {sandboxes.value.map((sandbox) => (
          <option key={sandbox.id} value={refOf(sandbox)} />
        ))}
        {snapshots.value.map(({ id, sandbox_name, name }) => (
          <option key={id} value={id} label={plain(`${sandbox_name}:${name}`)} />
        ))}
      </datalist>
    </div>
  );
};

export const Page = () => {
  const diff = useSignal<Diff | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  /** How often a merge or its undo has changed a side since the page was opened. */
  const turn = useSignal(0);
  const from = query.value.get('from') ?? '';
  const to = query.value.get('to') ?? '';
  const path = query.value.get('path') ?? '';
  const isSplit = query.value.get('view') !== 'unified';
  const isMerging = query.value.get('do') === 'merge';
  useEffect(() => {
    diff.value = undefined;
    failure.value = undefined;
    if (from === '' || to === '') return;
    const abort = new AbortController();
    client()
      .diff(idOf(from), idOf(to), { limit: mostListed, signal: abort.signal })
      .then(
        (found) => {
          diff.value = found;
          const first = found.changes.find(({ kind }) => kind === 'file') ?? found.changes[0];
          if (query.peek().get('path') === null && first !== undefined) setQuery({ path: first.path });
        },
        (error: unknown) => {
          if (abort.signal.aborted) return;
          noticeSignOut(error);
          failure.value = error;
        },
      );
    return () => abort.abort();
  }, [from, to, turn.value]);
  const changes = diff.value?.changes ?? [];
  const byPath = new Map(changes.map((change) => [change.path, change]));
  const move = (step: number): void => {
    const at = changes.findIndex((change) => change.path === path);
    const next = changes[Math.max(0, Math.min(changes.length - 1, at + step))];
    if (next !== undefined) setQuery({ path: next.path });
  };
  useKeys(
    {
      j: { title: 'Next file', run: () => move(1) },
      k: { title: 'File before', run: () => move(-1) },
      v: {
        title: 'Side by side, or one below the other',
        run: () => setQuery({ view: isSplit ? 'unified' : '' }),
      },
    },
    [diff.value, path, isSplit],
  );
  const summary = diff.value?.summary;
  const total = summary === undefined ? 0 : summary.added + summary.removed + summary.modified + summary.mode;
  const canMerge = sandboxOf(from) !== undefined && sandboxOf(to) !== undefined && from !== to;
  return (
    <>
      <div class="title">
        <h1>
          {summary === undefined
            ? 'Compare'
            : total === 0
              ? 'Nothing differs'
              : count(total, 'path differs', 'paths differ')}
        </h1>
        {canMerge && (
          <button
            type="button"
            aria-pressed={isMerging}
            onClick={() => setQuery({ do: isMerging ? '' : 'merge' })}
          >
            Merge {plain(to)} into {plain(from)}
          </button>
        )}
      </div>
      <Sides from={from} to={to} />
      <Failure error={failure.value} />
      {isMerging && canMerge && (
        <Merge
          from={to}
          into={from}
          onChange={() => {
            turn.value += 1;
          }}
        />
      )}
      {from === '' || to === '' ? (
        <section class="empty">
          <h2>Choose two states</h2>
          <p>A sandbox as it is now, or a snapshot. In the lineage, x picks two and d compares them.</p>
          <Command text="coppice diff dev:baseline dev" />
        </section>
      ) : (
        <>
          <div class="bar">
            <span class="summary">
              {summary !== undefined && (
                <>
                  <span class="mark added">A</span> {summary.added} added <span class="mark modified">M</span>{' '}
                  {summary.modified} changed <span class="mark removed">D</span> {summary.removed} removed{' '}
                  {summary.mode > 0 && `${summary.mode} with another mode`}
                </>
              )}
              {diff.value !== undefined && diff.value.left_out.length > 0 && (
                <span class="muted">
                  {' '}
                  Not compared, as a directory of the host is mounted there:{' '}
                  {plain(diff.value.left_out.join(', '))}
                </span>
              )}
              {diff.value?.truncated && <span class="muted"> The first {mostListed} are listed.</span>}
            </span>
            <Chips
              label="View"
              chosen={isSplit ? 'split' : 'unified'}
              choose={(view) => setQuery({ view: view === 'split' ? '' : view })}
              options={[
                { value: 'split', title: 'Side by side' },
                { value: 'unified', title: 'Unified' },
              ]}
            />
          </div>
          <div class="compare-split">
            <nav class="tree" aria-label="Changed files">
              <Files folder={treeOf(changes.map((change) => change.path))} changes={byPath} chosen={path} />
            </nav>
            <div>
              {path !== '' && (
                <DiffView
                  key={`${turn.value}`}
                  from={idOf(from)}
                  to={idOf(to)}
                  path={path}
                  isSplit={isSplit}
                  change={byPath.get(path)}
                />
              )}
              {path !== '' && <Command text={`coppice diff ${quoted(from)} ${quoted(to)} ${quoted(path)}`} />}
            </div>
          </div>
        </>
      )}
    </>
  );
};
