import type { Event } from '@coppice/protocol';
import { useComputed, useSignal } from '@preact/signals';
import { useKeys } from '../app/keys.ts';
import { query, setQuery } from '../app/router.ts';
import { events, hrefOf, nameOf } from '../app/store.ts';
import { clock, count, exact, plain } from '../app/text.ts';
import { Cell, Chips, Header, Search, VirtualList } from '../app/ui.tsx';

const rowHeight = 30;
const columns = [['Time'], ['What'], ['Sandbox'], ['More', 'wide']] as const;

const groupOf = ({ type }: Event): string => type.split('.')[0]!;

/** Where that id is shown; undefined where nothing has a page of its own. */
const placeOf = (value: unknown): string | undefined => {
  if (typeof value !== 'string') return undefined;
  if (/^sn_[0-9a-z]{26}$/.test(value)) return `/lineage?automatic=shown&q=${value}`;
  if (/^sb_[0-9a-z]{26}$/.test(value)) return hrefOf(value);
  return /^run_[0-9a-z]{26}$/.test(value) ? `/runs/${value}` : undefined;
};

/** What it says besides; ids of snapshots, sandboxes and runs become links. */
const More = ({ data }: { data: Event['data'] }) => (
  <>
    {Object.entries(data)
      .filter(([, value]) => value !== null && value !== '')
      .map(([key, value]) => (
        <span class="fact" key={key}>
          <span class="muted">{plain(key)}</span>{' '}
          {placeOf(value) === undefined ? (
            plain(typeof value === 'string' ? value : JSON.stringify(value))
          ) : (
            <a href={placeOf(value)}>{value as string}</a>
          )}
        </span>
      ))}
  </>
);

export const EventRow = ({ event }: { event: Event }) => (
  <>
    <Cell className="muted" title={exact(event.at)}>
      {clock(event.at)}
    </Cell>
    <Cell className={/fail|lost|unreached/.test(event.type) ? 'bad' : ''}>{plain(event.type)}</Cell>
    <Cell className="name">
      {event.sandbox_id !== null && <a href={hrefOf(event.sandbox_id)}>{plain(nameOf(event.sandbox_id))}</a>}
    </Cell>
    <Cell className="more wide" title={plain(JSON.stringify(event.data))}>
      <More data={event.data} />
    </Cell>
  </>
);

export const Page = () => {
  /** While it is paused, the events up to this one. */
  const pausedAt = useSignal<number | undefined>(undefined);
  const selected = useSignal(-1);
  const kept = useComputed(() => {
    const until = pausedAt.value;
    const all = until === undefined ? events.value : events.value.filter(({ seq }) => seq <= until);
    const words = (query.value.get('q') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter((event) => {
      const text = `${event.type} ${event.sandbox_id === null ? '' : `${event.sandbox_id} ${nameOf(event.sandbox_id)}`} ${JSON.stringify(event.data)}`;
      return words.every((word) => text.toLowerCase().includes(word));
    });
  });
  const group = query.value.get('about') ?? '';
  const shown = kept.value.filter((event) => group === '' || groupOf(event) === group).toReversed();
  const groups = Object.entries(Object.groupBy(kept.value, groupOf)).sort(([a], [b]) => (a < b ? -1 : 1));
  const waiting =
    events.value.length -
    (pausedAt.value === undefined
      ? events.value.length
      : events.value.findLastIndex(({ seq }) => seq <= pausedAt.value!) + 1);
  const toggle = (): void => {
    pausedAt.value = pausedAt.value === undefined ? (events.value.at(-1)?.seq ?? 0) : undefined;
  };
  useKeys({ p: { title: 'Pause or go on', run: toggle } }, []);
  return (
    <>
      <div class="title">
        <h1>Events</h1>
        <button type="button" aria-pressed={pausedAt.value !== undefined} onClick={toggle}>
          {pausedAt.value === undefined
            ? 'Pause'
            : waiting === 0
              ? 'Go on'
              : `Go on, ${count(waiting, 'new one', 'new ones')}`}
        </button>
      </div>
      <div class="bar">
        <Chips
          label="About"
          chosen={group}
          choose={(about) => setQuery({ about })}
          options={[
            { value: '', title: 'All', count: kept.value.length },
            ...groups.map(([value, found]) => ({ value, title: value, count: found?.length ?? 0 })),
          ]}
        />
        <Search value={query.value.get('q') ?? ''} onInput={(q) => setQuery({ q })} />
      </div>
      <VirtualList
        label="Events"
        className="events-list"
        items={shown}
        rowHeight={rowHeight}
        keyOf={({ seq }) => String(seq)}
        selected={selected}
        header={<Header columns={columns} />}
        row={(event) => <EventRow event={event} />}
      />
      <p class="note muted">
        {shown.length === 0
          ? 'Nothing has happened that fits.'
          : `Up to event ${shown[0]!.seq}. The same for a program: `}
        {shown.length > 0 && <code>coppice events --follow</code>}
      </p>
    </>
  );
};
