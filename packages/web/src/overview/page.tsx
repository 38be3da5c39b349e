import type { Sandbox } from '@coppice/protocol';
import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { actionsOf, ask, create } from '../app/actions.tsx';
import { useKeys } from '../app/keys.ts';
import { questions, watchQuestions } from '../app/questions.ts';
import { go, query, setQuery } from '../app/router.ts';
import { client, mayChange } from '../app/session.ts';
import { hrefOf, loaded, nameOf, refOf, sandboxes } from '../app/store.ts';
import { bytes, count, dollars, plain } from '../app/text.ts';
import {
  Age,
  Cell,
  Chips,
  Command,
  Header,
  Meter,
  Search,
  Sparkline,
  State,
  VirtualList,
} from '../app/ui.tsx';
import { spending, watchSpending } from './spending.ts';
import { usage, watchUsage } from './usage.ts';

const rowHeight = 36;
/** Of those that are shown; each is a call. */
const mostMeasured = 24;
const measureEveryMs = 3_000;

/** It failed, or one of its connections waits for a yes or a no. */
const needsYou = ({ id, state }: Sandbox): boolean => state === 'failed' || questions.value.has(id);

const inState = (state: string) => (sandbox: Sandbox) => sandbox.state === state;
const filters: Readonly<
  Record<string, { readonly title: string; readonly holds: (sandbox: Sandbox) => boolean }>
> = {
  '': { title: 'All', holds: () => true },
  running: { title: 'Running', holds: inState('running') },
  paused: { title: 'Asleep', holds: inState('paused') },
  stopped: { title: 'Stopped', holds: inState('stopped') },
  failed: { title: 'Failed', holds: inState('failed') },
  needs: { title: 'Needs you', holds: needsYou },
};

const columns = [
  ['State', 'state-column'],
  ['Name'],
  ['Grown from', 'wide'],
  ['Processor', 'wide'],
  ['Memory', 'number wide'],
  ['Disk', 'number wide'],
  ['Today', 'number'],
  ['Age', 'number'],
] as const;

/** The answer before the numbers. */
const sentence = (all: readonly Sandbox[]): string => {
  const of = (state: string): number => all.filter((sandbox) => sandbox.state === state).length;
  const parts = [`${of('running')} running`];
  if (of('paused') > 0) parts.push(`${of('paused')} asleep`);
  if (of('stopped') > 0) parts.push(`${of('stopped')} stopped`);
  const needing = all.filter(needsYou).length;
  if (needing > 0) parts.push(`${count(needing, 'needs', 'need')} you`);
  const money = spending.value;
  if (money !== undefined)
    parts.push(
      money.limitMicros === null
        ? `${dollars(money.todayMicros)} today`
        : `${dollars(money.todayMicros)} of ${dollars(money.limitMicros)} today`,
    );
  return parts.join(', ');
};

const Empty = () => (
  <section class="empty">
    <h2>No sandbox yet</h2>
    <p>Make one, work in it, and grow a second from it:</p>
    <Command text="coppice create dev" />
    <Command text="coppice exec dev -- sh -c 'echo hello > /root/hello'" />
    <Command text="coppice fork dev try" />
  </section>
);

const Row = ({ sandbox }: { sandbox: Sandbox }) => {
  // Only those that run are measured: what one used before it stopped is no longer true.
  const measured = sandbox.state === 'running' ? usage.value.get(sandbox.id) : undefined;
  const asked = questions.value.get(sandbox.id);
  const cost = spending.value?.bySandbox.get(sandbox.id);
  const grownFrom =
    sandbox.parent === null
      ? sandbox.image
      : sandbox.parent.sandbox_id === null
        ? sandbox.parent.snapshot_id
        : nameOf(sandbox.parent.sandbox_id);
  return (
    <>
      <Cell className="state-column" title={sandbox.failure ?? undefined}>
        <State of={sandbox.state} />
      </Cell>
      <Cell className="name">
        <a href={hrefOf(sandbox.id)}>{plain(refOf(sandbox))}</a>
        {asked !== undefined && (
          <a class="label needs" href={`${hrefOf(sandbox.id)}?tab=network`}>
            asks{' '}
            <span class="word">
              for {plain(asked[0]!.name)}
              {asked.length > 1 && ` and ${asked.length - 1} more`}
            </span>
          </a>
        )}
        {Object.entries(sandbox.labels)
          .slice(0, 2)
          .map(([key, value]) => (
            <span class="label" key={key}>
              {plain(value === '' ? key : `${key}=${value}`)}
            </span>
          ))}
      </Cell>
      <Cell className="muted wide">{plain(grownFrom)}</Cell>
      <Cell className="wide">
        {measured !== undefined && measured.cpu.length > 1 && (
          <Sparkline
            values={measured.cpu}
            most={Math.max(0.1, sandbox.cpus)}
            label={`Processor: ${(measured.cpu.at(-1)! * 100).toFixed(0)} percent of one`}
          />
        )}
      </Cell>
      <Cell className="number wide">
        {measured === undefined ? (
          <span class="muted">–</span>
        ) : (
          <>
            {bytes(measured.memoryBytes)}
            <Meter value={measured.memoryBytes} most={sandbox.memory_mb * 1024 * 1024} label="Memory" />
          </>
        )}
      </Cell>
      <Cell className="number wide">
        {measured === undefined ? <span class="muted">–</span> : bytes(measured.diskBytes)}
      </Cell>
      <Cell className="number">
        {cost === undefined || cost === 0 ? <span class="muted">–</span> : dollars(cost)}
      </Cell>
      <Cell className="number">
        <Age at={sandbox.created_at} />
      </Cell>
    </>
  );
};

export const Page = () => {
  const selected = useSignal(-1);
  const shown = useComputed(() => {
    const state = query.value.get('state') ?? '';
    const words = (query.value.get('q') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    return sandboxes.value.filter((sandbox) => {
      if (filters[state]?.holds(sandbox) === false) return false;
      const text = `${sandbox.name} ${sandbox.image} ${sandbox.id} ${Object.entries(sandbox.labels).flat().join(' ')}`;
      return words.every((word) => text.toLowerCase().includes(word));
    });
  });
  useEffect(watchSpending, []);
  useEffect(watchQuestions, []);
  useEffect(
    () =>
      watchUsage(
        () =>
          shown
            .peek()
            .filter(({ state }) => state === 'running')
            .slice(0, mostMeasured)
            .map(({ id }) => id),
        measureEveryMs,
      ),
    [],
  );
  const chosen = (): Sandbox | undefined => shown.value[selected.value];
  const move = (step: number): void => {
    selected.value = Math.max(0, Math.min(shown.value.length - 1, selected.value + step));
  };
  const act = (key: string): void => {
    const sandbox = chosen();
    const found = sandbox && actionsOf(sandbox).find((action) => action.key === key);
    if (found !== undefined) ask(found.action);
  };
  useKeys(
    {
      j: { title: 'Next row', run: () => move(1) },
      k: { title: 'Row before', run: () => move(-1) },
      Enter: { title: 'Open', run: () => chosen() && go(hrefOf(chosen()!.id)) },
      f: { title: 'Fork', run: () => act('f') },
      s: { title: 'Snapshot', run: () => act('s') },
      d: {
        title: 'Compare with what it grew from',
        run: () => {
          const sandbox = chosen();
          if (sandbox?.parent)
            go(`/compare?from=${sandbox.parent.snapshot_id}&to=${encodeURIComponent(refOf(sandbox))}`);
        },
      },
    },
    [],
  );
  const state = query.value.get('state') ?? '';
  const isEmpty = loaded.value && sandboxes.value.length === 0;
  return (
    <>
      <div class="title">
        <h1>{loaded.value ? sentence(sandboxes.value) : 'Overview'}</h1>
        {mayChange() && (
          <button
            type="button"
            class="primary"
            onClick={() => {
              void client()
                .images.list()
                .then((images) => ask(create(images.map(({ name }) => name))));
            }}
          >
            New sandbox
          </button>
        )}
      </div>
      {isEmpty ? (
        <Empty />
      ) : (
        <>
          <div class="bar">
            <Chips
              label="State"
              chosen={state}
              choose={(value) => setQuery({ state: value })}
              options={Object.entries(filters).map(([value, { title, holds }]) => ({
                value,
                title,
                count: sandboxes.value.filter(holds).length,
              }))}
            />
            <Search value={query.value.get('q') ?? ''} onInput={(q) => setQuery({ q })} />
          </div>
          <VirtualList
            label="Sandboxes"
            items={shown.value}
            rowHeight={rowHeight}
            keyOf={({ id }) => id}
            selected={selected}
            header={<Header columns={columns} />}
            row={(sandbox) => <Row sandbox={sandbox} />}
          />
        </>
      )}
    </>
  );
};
