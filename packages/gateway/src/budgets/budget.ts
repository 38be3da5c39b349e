import { z } from 'zod';

export const budgetScopes = ['sandbox', 'run', 'agent', 'project', 'home'] as const;
export type BudgetScope = (typeof budgetScopes)[number];

const limit = z.int().min(0).max(Number.MAX_SAFE_INTEGER);

/** What the calls of one scope may take in all, or on each day. */
export const budgetSchema = z
  .strictObject({
    scope: z.enum(budgetScopes),
    /** Whose it is; empty for the home, which is all. */
    name: z.string().max(200).default(''),
    /** A day is one of UTC. */
    period: z.enum(['ever', 'day']).default('ever'),
    tokens: limit.nullable().default(null),
    /** Millionths of a US dollar. */
    micros: limit.nullable().default(null),
    /** What the daemon does with the sandboxes of a budget that is used up. Calls are refused in any case. */
    action: z.enum(['refuse', 'pause', 'stop']).default('refuse'),
  })
  .refine((budget) => (budget.scope === 'home') === (budget.name === ''), {
    message: 'a budget of the home has no name, and every other one has',
  })
  .refine((budget) => budget.tokens !== null || budget.micros !== null, {
    message: 'a budget limits tokens, money or both',
  });
export type Budget = z.output<typeof budgetSchema>;
export type BudgetInput = z.input<typeof budgetSchema>;
export type BudgetKey = Pick<Budget, 'scope' | 'name' | 'period'>;

/** A budget and what became of it; in the running day where it is one of days. */
export interface BudgetState extends Budget {
  readonly spentTokens: number;
  readonly spentMicros: number;
  /** Held by calls that run. */
  readonly heldTokens: number;
  readonly heldMicros: number;
}

/** How much of it is spent; the nearer limit counts. */
export const spentPercent = (state: BudgetState): number => {
  const part = (spent: number, of: number | null): number =>
    of === null ? 0 : of === 0 ? 100 : (spent / of) * 100;
  return Math.max(part(state.spentTokens, state.tokens), part(state.spentMicros, state.micros));
};

const dollars = (micros: number): string => (micros / 1e6).toFixed(micros % 10_000 === 0 ? 2 : 6);

/** One sentence for people; agents show it to them. */
export const describeSpent = (state: BudgetState): string => {
  const whose = state.scope === 'home' ? 'this home' : `the ${state.scope} ${state.name}`;
  const when = state.period === 'day' ? 'for today ' : '';
  const parts = [
    ...(state.micros === null
      ? []
      : [`${dollars(state.spentMicros)} of ${dollars(state.micros)} US dollars`]),
    ...(state.tokens === null ? [] : [`${state.spentTokens} of ${state.tokens} tokens`]),
  ];
  return `The budget ${when}of ${whose} is used up: ${parts.join(', ')} spent. Ask its owner to raise it.`;
};
