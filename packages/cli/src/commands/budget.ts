import type { Budget } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Option } from 'commander';
import { parseWhole } from '../args/number.ts';
import { formatMicros } from '../ui/money.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

type Scope = Budget['scope'];

interface Key {
  readonly name?: string;
  readonly daily?: boolean;
}

const parseDollars = (text: string): number => {
  if (!/^\d{1,9}(\.\d{1,6})?$/.test(text))
    throw new CoppiceError('invalid_argument', `${text} is no amount of dollars`, {
      hint: 'For example: --usd 2.50',
    });
  return Math.round(Number(text) * 1e6);
};

const actions: readonly Budget['action'][] = ['refuse', 'pause', 'stop'];
const scopes = ['sandbox', 'run', 'agent', 'project', 'home'] as const;

const keyOf = (scope: Scope, { name, daily }: Key) => {
  if ((scope === 'home') !== (name === undefined))
    throw new CoppiceError(
      'invalid_argument',
      `a budget of ${scope} ${scope === 'home' ? 'takes no' : 'needs a'} name`,
      {
        hint: 'For example: coppice budget set sandbox dev --usd 2',
      },
    );
  return { scope, name: name ?? '', period: daily ? 'day' : 'ever' } as const;
};

const scopeOf = (text: string): Scope => {
  const scope = scopes.find((each) => each === text);
  if (scope !== undefined) return scope;
  throw new CoppiceError('invalid_argument', `${text} has no budget`, {
    hint: `One of: ${scopes.join(', ')}`,
  });
};

const spent = ({ micros, spent_micros, tokens, spent_tokens }: Budget): string =>
  [
    ...(micros === null ? [] : [`${formatMicros(spent_micros)} of ${formatMicros(micros)}`]),
    ...(tokens === null ? [] : [`${spent_tokens} of ${tokens} tokens`]),
  ].join(', ');

export const define: DefineCommand = (program, cli) => {
  const budget = verb(program, 'budget', 'Limit what model calls may cost');
  const daily = (): Option => new Option('--daily', 'of each day (UTC), not in all');
  verb(budget, 'set', 'Set a budget; calls beyond it are refused')
    .argument('<scope>', scopes.join(', '))
    .argument('[name]', 'whose; none for home')
    .option('--usd <dollars>', 'in money', parseDollars)
    .option('--tokens <count>', 'in tokens', parseWhole)
    .addOption(
      new Option(
        '--then <action>',
        'what happens to its sandboxes at the limit; calls are refused in any case',
      )
        .choices(actions)
        .default('refuse'),
    )
    .addOption(daily())
    .addHelpText(
      'after',
      examples(
        'coppice budget set sandbox dev --usd 2 --then pause',
        'coppice budget set project web --usd 50',
        'coppice budget set home --usd 20 --daily',
      ),
    )
    .action(
      async (
        scope: string,
        name: string | undefined,
        options: { usd?: number; tokens?: number; daily?: boolean; then: Budget['action'] },
      ) => {
        if (options.usd === undefined && options.tokens === undefined)
          throw new CoppiceError(
            'invalid_argument',
            'a budget limits money (--usd), tokens (--tokens) or both',
          );
        const key = keyOf(scopeOf(scope), {
          ...(name === undefined ? {} : { name }),
          daily: options.daily ?? false,
        });
        const set = await cli.coppice.budgets.set(
          {
            ...key,
            micros: options.usd ?? null,
            tokens: options.tokens ?? null,
            action: options.then,
          },
          { signal: cli.signal },
        );
        cli.out.result(set, () => `${scope} ${name ?? ''}: ${spent(set)} spent`.replace(' :', ':'));
      },
    );
  verb(budget, 'ls', 'List budgets and how much of each is spent').action(async () => {
    const budgets = await cli.coppice.budgets.list({ signal: cli.signal });
    const rows = budgets.map((each) => [each.scope, each.name || '-', each.period, spent(each), each.action]);
    cli.out.result(budgets, () =>
      cli.out.table(['SCOPE', 'NAME', 'PERIOD', 'SPENT', 'THEN'], rows, 'No budgets.'),
    );
  });
  verb(budget, 'rm', 'Remove a budget')
    .argument('<scope>', scopes.join(', '))
    .argument('[name]', 'whose; none for home')
    .addOption(daily())
    .action(async (scope: string, name: string | undefined, options: { daily?: boolean }) => {
      const key = keyOf(scopeOf(scope), {
        ...(name === undefined ? {} : { name }),
        daily: options.daily ?? false,
      });
      await cli.coppice.budgets.remove(key, { signal: cli.signal });
      cli.out.result({ removed: key }, () => `removed the budget of ${scope} ${name ?? ''}`.trimEnd());
    });
};
