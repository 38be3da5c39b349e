// Budgets
export {
  type Budget,
  type BudgetInput,
  type BudgetKey,
  type BudgetScope,
  type BudgetState,
  budgetSchema,
  budgetScopes,
} from './budgets/budget.ts';
export { Budgets } from './budgets/budgets.ts';
// Feed
export { Outbox } from './feed/outbox.ts';
// Ledger
export {
  type CostKey,
  type CostQuery,
  type CostReport,
  type CostRow,
  type CostSums,
  costQuerySchema,
  costs,
} from './ledger/costs.ts';
export { type Beginning, Ledger } from './ledger/ledger.ts';
export { type LedgerDatabase, openLedgerFile } from './ledger/open-ledger-file.ts';
export type { Outcome, Settlement } from './ledger/settlement.ts';
// Models
export type { Caller } from './models/caller.ts';
export type { DialectName } from './models/dialect.ts';
export { messagesIn, Sightings } from './models/message-markers.ts';
export { type GatewayLimits, type GatewayParts, ModelGateway } from './models/model-gateway.ts';
export { type ModelsConfig, modelsConfigSchema, type Upstream, Upstreams } from './models/upstreams.ts';
export type { Usage } from './models/usage.ts';
// Prices
export { type PriceFile, Prices, priceFileSchema } from './prices/prices.ts';
// Recordings
export { type RecordingOptions, Recordings } from './recordings/recordings.ts';
export { type Script, scriptSchema } from './recordings/scripted/script.ts';
export { ScriptPlayer } from './recordings/scripted/script-player.ts';
export { type Heard, ScriptedUpstream } from './recordings/scripted/scripted-upstream.ts';
export { Scripts } from './recordings/scripted/scripts.ts';
