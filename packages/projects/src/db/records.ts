import type {
  Case,
  Evaluator,
  ProjectEvaluation,
  RunExit,
  StartExperiment,
  Variant,
} from '@coppice/protocol';
import type { Config } from '../agent-types/agent-type.ts';

export interface ProjectRecord {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly status: 'active' | 'promoted' | 'killed';
  readonly createdMs: number;
  readonly promotedMs: number | null;
  readonly capMicros: number | null;
  readonly endsMs: number | null;
  readonly endedBecause: string | null;
  /** When something last happened in it. */
  readonly activeMs: number;
  readonly forgotten: number;
  /** The snapshot that it is being brought back to. */
  readonly restoring: number | null;
}

export interface AgentRecord {
  readonly id: string;
  readonly projectId: string;
  readonly name: string;
  readonly type: string;
  readonly typeVersion: number;
  /** The type as it was then: a file that changes later changes no agent. */
  readonly typeFile: unknown;
  readonly config: Config;
  readonly status: 'active' | 'paused' | 'killed';
  readonly tokenBudget: number;
  readonly scheduleS: number | null;
  readonly nextRunMs: number | null;
  readonly deployedMs: number;
}

/** A run of an agent of a project, of a trial, or of an agent of production. */
export interface RunRecord {
  readonly id: string;
  readonly projectId: string;
  readonly agentId: string;
  readonly experimentId: number | null;
  readonly trial: number | null;
  readonly state: 'starting' | 'running' | 'ended';
  readonly exit: RunExit | null;
  readonly summary: string;
  readonly sandboxId: string | null;
  readonly fromSnapshot: string | null;
  readonly endSnapshot: string | null;
  readonly startedMs: number;
  readonly deadlineMs: number;
  readonly endedMs: number | null;
  readonly attempt: number;
}

export interface LedgerRecord {
  readonly id: number;
  readonly atMs: number;
  readonly projectId: string;
  readonly agentId: string | null;
  readonly runId: string | null;
  readonly kind: 'cost' | 'revenue' | 'refund' | 'adjustment';
  readonly micros: number;
  readonly tokens: number;
  readonly source: string;
  readonly evidence: string;
  readonly key: string;
}

export interface MetricRecord {
  readonly id: number;
  readonly atMs: number;
  readonly projectId: string;
  readonly agentId: string | null;
  readonly runId: string | null;
  readonly name: string;
  readonly value: number;
  readonly source: string;
  readonly key: string;
}

export interface NoteRecord {
  readonly id: number;
  readonly atMs: number;
  readonly projectId: string;
  readonly agentId: string | null;
  readonly text: string;
  readonly source: string;
}

export interface ExperimentRecord {
  readonly id: number;
  readonly projectId: string;
  readonly name: string;
  readonly hypothesis: string;
  readonly template: StartExperiment['template'];
  readonly state: 'logged' | 'running' | 'done' | 'stopped' | 'failed';
  readonly success: number | null;
  readonly config: Config;
  readonly results: Config;
  readonly type: string | null;
  readonly typeFile: unknown;
  readonly variants: readonly Variant[];
  readonly cases: readonly Case[];
  readonly snapshots: readonly string[];
  readonly evaluator: Evaluator;
  readonly stop: 'anytime' | 'fixed';
  readonly seed: number;
  readonly parallel: number;
  readonly mergeInto: string | null;
  readonly base: string | null;
  readonly ownsBase: number;
  readonly winner: string | null;
  readonly failure: string | null;
  readonly startedMs: number;
  readonly completedMs: number | null;
}

export interface TrialRecord {
  readonly experimentId: number;
  readonly n: number;
  readonly variant: string;
  readonly caseId: string;
  readonly epoch: number;
  readonly state: 'pending' | 'running' | 'waiting' | 'done';
  readonly exit: RunExit | null;
  readonly passed: number | null;
  readonly score: number | null;
  readonly costMicros: number;
  readonly durationMs: number | null;
  readonly attempts: number;
  readonly reason: string;
  readonly runId: string | null;
  readonly snapshot: string | null;
}

export interface EvaluationRecord {
  readonly digest: string;
  readonly projectId: string;
  readonly atMs: number;
  readonly body: ProjectEvaluation;
}

export interface ProjectSnapshotRecord {
  readonly id: number;
  readonly projectId: string;
  readonly name: string;
  readonly atMs: number;
  readonly body: ProjectState;
}

/** Everything of a project at one instant but its ledger, which only grows. */
export interface ProjectState {
  readonly project: ProjectRecord;
  readonly agents: readonly AgentRecord[];
  readonly metrics: readonly MetricRecord[];
  readonly notes: readonly NoteRecord[];
  readonly experiments: readonly ExperimentRecord[];
  readonly trials: readonly TrialRecord[];
  readonly runs: readonly RunRecord[];
  /** Of each sandbox that worked for it at that instant. */
  readonly sandboxes: readonly { readonly runId: string; readonly snapshotId: string }[];
  /** The directory with a copy of the workspace. */
  readonly workspace: string;
}

export interface NotificationRecord {
  readonly id: number;
  readonly messageId: string;
  readonly url: string;
  readonly event: string;
  readonly projectId: string;
  readonly body: string;
  readonly state: 'waiting' | 'sent' | 'given-up';
  readonly attempts: number;
  readonly nextMs: number;
  readonly failure: string | null;
}

export interface WebhookRecord {
  readonly url: string;
  readonly secret: string;
  readonly createdMs: number;
}
