export { AgentType, type Config, sandboxBudgetFactor } from './agent-types/agent-type.ts';
export { AgentTypes } from './agent-types/catalogue.ts';
export {
  type IncidentRecord,
  type LaneRecord,
  type ProductionAgentRecord,
  type ProductionRunRecord,
  ProductionStore,
} from './db/production-store.ts';
export { ProjectStore } from './db/project-store.ts';
export type * from './db/records.ts';
export { judge, mayPromote, roiOf } from './evaluation/evaluate.ts';
export { meanGate, passGate, shareGate } from './evaluation/gate.ts';
export { baselineRate, guard } from './evaluation/guard.ts';
export { type BisectStep, nextBisectStep } from './experiments/bisect.ts';
export { bestOf, type ScoredTrial, summarise, type VariantSummary } from './experiments/summarise.ts';
export { planTrials } from './experiments/trial-plan.ts';
