import type { AgentType, Config } from '@coppice/projects';
import type { Case, RunExit } from '@coppice/protocol';

/** A run that the machine broke is run again until it was tried so often. */
export const mostAttempts = 3;

/** Under which name the gateway knows the calls of the judge of a run. */
export const judgeOf = (runId: string): string => `${runId}-judge`;

/** What a run is to do. */
export interface WorkOrder {
  readonly type: AgentType;
  readonly config: Config;
  readonly prompt?: string | undefined;
  readonly image?: string | undefined;
  /** Grow the sandbox from this snapshot or checkpoint instead of an image. */
  readonly from?: string | undefined;
  readonly case?: Case | undefined;
  /** Of this run alone, where its agent has none of its own. */
  readonly tokenBudget?: number | undefined;
  readonly timeS: number;
  /** On the run, for people. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly projectId: string;
  readonly agentId: string;
  readonly runId: string;
}

/** What came out of a run, before anything of it is written down. Everything in it is the agent's word. */
export interface WorkOutcome {
  readonly exit: RunExit;
  readonly summary: string;
  readonly output: string;
  readonly report: AgentReport;
}

export interface AgentReport {
  readonly revenueUsd: number;
  readonly costUsd: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly notes: readonly string[];
}

export const emptyReport: AgentReport = { revenueUsd: 0, costUsd: 0, metrics: {}, notes: [] };
