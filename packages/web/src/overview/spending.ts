import type { Budget } from '@coppice/protocol';
import { signal } from '@preact/signals';
import { client, isAdmin, noticeSignOut } from '../app/session.ts';

export interface Spending {
  readonly todayMicros: number;
  /** The limit for a day of all that is seen here, where there is one: of the home, or of the project. */
  readonly limitMicros: number | null;
  readonly bySandbox: ReadonlyMap<string, number>;
}

const everyMs = 10_000;

export const spending = signal<Spending | undefined>(undefined);

const isOfToday = ({ scope, period }: Budget): boolean =>
  period === 'day' && scope === (isAdmin() ? 'home' : 'project');

const look = async (): Promise<void> => {
  const since_ms = new Date().setUTCHours(0, 0, 0, 0);
  const [costs, budgets] = await Promise.all([
    client().costs({ by: 'sandbox', since_ms }),
    client().budgets.list(),
  ]);
  spending.value = {
    todayMicros: costs.total.cost_micros,
    limitMicros: budgets.find(isOfToday)?.micros ?? null,
    bySandbox: new Map(costs.rows.map(({ key, cost_micros }) => [key.sandbox ?? '', cost_micros])),
  };
};

export const watchSpending = (): (() => void) => {
  const run = (): void => {
    if (!document.hidden) look().catch(noticeSignOut);
  };
  run();
  const timer = setInterval(run, everyMs);
  return () => clearInterval(timer);
};
