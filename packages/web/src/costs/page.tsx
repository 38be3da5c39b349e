import type { Budget, Costs } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { hrefOf, nameOf, now } from '../app/store.ts';
import { count, dollars, plain } from '../app/text.ts';
import { Cell, Chips, Command, Failure, Header, Meter, VirtualList } from '../app/ui.tsx';

const rowHeight = 34;
const keys = ['sandbox', 'run', 'agent', 'project', 'model', 'day'] as const;
const periods = { today: 0, week: 7, all: undefined } as const;
/** Costs come from calls, which no event tells of. */
const everyTicks = 10;

const columns = [
  ['', 'name'],
  ['Share', 'wide'],
  ['Calls', 'number'],
  ['Input', 'number wide'],
  ['Cached', 'number wide'],
  ['Output', 'number wide'],
  ['Cost', 'number'],
] as const;

const sinceMs = (period: string): number | undefined => {
  const days = periods[period as keyof typeof periods];
  return days === undefined ? undefined : new Date().setUTCHours(0, 0, 0, 0) - days * 86_400_000;
};

const Budgets = ({ budgets }: { budgets: readonly Budget[] }) => (
  <section class="cards" aria-label="Budgets">
    {budgets.map((budget) => (
      <div class="card" key={`${budget.scope} ${budget.name} ${budget.period}`}>
        <h3>
          {budget.scope === 'home'
            ? 'All of this home'
            : `${budget.scope} ${plain(budget.scope === 'sandbox' ? nameOf(budget.name) : budget.name)}`}
          {budget.period === 'day' ? ', each day' : ''}
        </h3>
        {budget.micros !== null && (
          <>
            <p>
              <b>{dollars(budget.spent_micros)}</b> of {dollars(budget.micros)}
            </p>
            <Meter
              value={budget.spent_micros + budget.held_micros}
              most={Math.max(1, budget.micros)}
              label="Spent"
            />
          </>
        )}
        {budget.tokens !== null && (
          <>
            <p>
              <b>{budget.spent_tokens.toLocaleString('en')}</b> of {count(budget.tokens, 'token')}
            </p>
            <Meter
              value={budget.spent_tokens + budget.held_tokens}
              most={Math.max(1, budget.tokens)}
              label="Tokens used"
            />
          </>
        )}
      </div>
    ))}
  </section>
);

export const Page = () => {
  const found = useSignal<{ readonly costs: Costs; readonly budgets: readonly Budget[] } | undefined>(
    undefined,
  );
  const failure = useSignal<unknown>(undefined);
  const selected = useSignal(-1);
  const by = query.value.get('by') ?? 'sandbox';
  const period = query.value.get('since') ?? 'today';
  useSignalEffect(() => {
    // Looks again as time passes, and at once when the question changes.
    void Math.floor(now.value / 1000 / everyTicks);
    const since = sinceMs(query.value.get('since') ?? 'today');
    const key = query.value.get('by') ?? 'sandbox';
    Promise.all([
      client().costs({ by: key, ...(since === undefined ? {} : { since_ms: since }) }),
      client().budgets.list(),
    ]).then(
      ([costs, budgets]) => {
        found.value = { costs, budgets };
        failure.value = undefined;
      },
      (error: unknown) => {
        noticeSignOut(error);
        failure.value = error;
      },
    );
  });
  const costs = found.value?.costs;
  const most = Math.max(1, ...(costs?.rows.map(({ cost_micros }) => cost_micros) ?? []));
  return (
    <>
      <div class="title">
        <h1>
          {costs === undefined
            ? 'Costs'
            : `${dollars(costs.total.cost_micros)} for ${count(costs.total.calls, 'call')} to models`}
        </h1>
      </div>
      <Failure error={failure.value} />
      <Budgets budgets={found.value?.budgets ?? []} />
      <div class="bar">
        <Chips
          label="By"
          chosen={by}
          choose={(value) => setQuery({ by: value })}
          options={keys.map((value) => ({ value, title: `By ${value}` }))}
        />
        <Chips
          label="Since"
          chosen={period}
          choose={(since) => setQuery({ since })}
          options={[
            { value: 'today', title: 'Today' },
            { value: 'week', title: 'Last 7 days' },
            { value: 'all', title: 'Ever' },
          ]}
        />
      </div>
      {costs?.rows.length === 0 ? (
        <section class="empty">
          <h2>No calls to models</h2>
          <p>
            Sandboxes call models through the gateway, which counts what they take. Give it a key and a limit:
          </p>
          <Command text="coppice secret set anthropic < key.txt" />
          <Command text="coppice budget set home --usd 10 --daily" />
        </section>
      ) : (
        <VirtualList
          label="Costs"
          className="costs-list"
          items={costs?.rows ?? []}
          rowHeight={rowHeight}
          selected={selected}
          keyOf={({ key }) => JSON.stringify(key)}
          header={
            <Header
              columns={columns.map(([title, className]) => [title === '' ? by : title, className] as const)}
            />
          }
          row={(row) => {
            const key = Object.values(row.key)[0] ?? null;
            const name = key === null ? 'nobody in particular' : by === 'sandbox' ? nameOf(key) : key;
            return (
              <>
                <Cell className="name">
                  {by === 'sandbox' && key !== null ? <a href={hrefOf(key)}>{plain(name)}</a> : plain(name)}
                </Cell>
                <Cell className="wide">
                  <Meter value={row.cost_micros} most={most} label="Share" isShare />
                </Cell>
                <Cell className="number">
                  {row.calls.toLocaleString('en')}
                  {row.running > 0 && <span class="muted"> +{row.running}</span>}
                </Cell>
                <Cell className="number wide">{row.input.toLocaleString('en')}</Cell>
                <Cell className="number wide">{row.cache_read.toLocaleString('en')}</Cell>
                <Cell className="number wide">{row.output.toLocaleString('en')}</Cell>
                <Cell
                  className="number"
                  title={row.unpriced > 0 ? `${row.unpriced} calls have no price` : undefined}
                >
                  {dollars(row.cost_micros)}
                  {row.unpriced > 0 && '+'}
                </Cell>
              </>
            );
          }}
        />
      )}
    </>
  );
};
