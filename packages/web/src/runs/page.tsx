import type { Run } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { useKeys } from '../app/keys.ts';
import { go, query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { generation } from '../app/store.ts';
import { count, plain } from '../app/text.ts';
import { Age, Cell, Chips, Command, Failure, Header, VirtualList } from '../app/ui.tsx';
import { RunPage, RunState } from './detail.tsx';

const rowHeight = 36;
const columns = [
  ['State', 'state-column'],
  ['Name'],
  ['Task', 'wide'],
  ['Agent', 'wide'],
  ['Turn', 'number'],
  ['Steps', 'number'],
  ['Age', 'number'],
] as const;

const isOver = ({ ended_at }: Run): boolean => ended_at !== null;
const filters = {
  '': { title: 'All', holds: () => true },
  working: { title: 'Working', holds: (run: Run) => !isOver(run) && run.working },
  waiting: { title: 'Waiting', holds: (run: Run) => !isOver(run) && !run.working },
  failed: { title: 'Failed', holds: (run: Run) => run.outcome === 'failed' || run.state === 'failed' },
  done: { title: 'Done', holds: (run: Run) => run.outcome === 'succeeded' },
} as const;

const List = () => {
  const runs = useSignal<readonly Run[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const selected = useSignal(-1);
  useSignalEffect(() => {
    void generation.value;
    client()
      .runs.list({ limit: 1000 })
      .then(
        (found) => {
          runs.value = found;
          failure.value = undefined;
        },
        (error: unknown) => {
          noticeSignOut(error);
          failure.value = error;
        },
      );
  });
  const which = query.value.get('state') ?? '';
  const holds = filters[which as keyof typeof filters]?.holds ?? filters[''].holds;
  const shown = (runs.value ?? []).filter(holds);
  const move = (step: number): void => {
    selected.value = Math.max(0, Math.min(shown.length - 1, selected.value + step));
  };
  useKeys(
    {
      j: { title: 'Next row', run: () => move(1) },
      k: { title: 'Row before', run: () => move(-1) },
      Enter: { title: 'Open', run: () => shown[selected.value] && go(`/runs/${shown[selected.value]!.id}`) },
    },
    [runs.value, which],
  );
  if (runs.value?.length === 0)
    return (
      <>
        <h1 class="sr">Runs</h1>
        <section class="empty">
          <h2>No runs yet</h2>
          <p>A run is an agent at work on a task in a sandbox. Each of its steps can be gone back to.</p>
          <Command text={"coppice agent start --task 'count to ten' -- sh -c 'seq 10'"} />
        </section>
      </>
    );
  return (
    <>
      <div class="title">
        <h1>{runs.value === undefined ? 'Runs' : count(runs.value.length, 'run')}</h1>
      </div>
      <Failure error={failure.value} />
      <div class="bar">
        <Chips
          label="State"
          chosen={which}
          choose={(state) => setQuery({ state })}
          options={Object.entries(filters).map(([value, { title, holds: fits }]) => ({
            value,
            title,
            count: (runs.value ?? []).filter(fits).length,
          }))}
        />
      </div>
      <VirtualList
        label="Runs"
        className="runs-list"
        items={shown}
        rowHeight={rowHeight}
        keyOf={({ id }) => id}
        selected={selected}
        header={<Header columns={columns} />}
        row={(run) => (
          <>
            <Cell className="state-column" title={plain(run.reason)}>
              <RunState run={run} />
            </Cell>
            <Cell className="name">
              <a href={`/runs/${run.id}`}>{plain(run.name)}</a>
            </Cell>
            <Cell className="wide muted">{plain(run.task)}</Cell>
            <Cell className="wide">{plain(run.agent)}</Cell>
            <Cell className="number">{run.turn}</Cell>
            <Cell className="number">{run.last_step}</Cell>
            <Cell className="number">
              <Age at={run.created_at} />
            </Cell>
          </>
        )}
      />
    </>
  );
};

export const Page = ({ argument }: { argument: string }) =>
  argument === '' ? <List /> : <RunPage of={argument} />;
