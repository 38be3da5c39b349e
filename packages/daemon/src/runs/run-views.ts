import type { Run, RunMessage, RunStep } from '@coppice/protocol';
import type { RunMessageRecord } from '../db/run-message-table.ts';
import type { RunStepRecord } from '../db/run-step-table.ts';
import type { RunRecord } from '../db/run-table.ts';

const time = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

export const runView = (run: RunRecord): Run => ({
  id: run.id,
  name: run.name,
  state: run.state,
  outcome: run.outcome,
  reason: run.reason,
  paused: run.paused,
  agent: run.spec.agent,
  adapter: run.adapter,
  model: run.spec.model ?? null,
  task: run.spec.task,
  sandbox_id: run.sandboxId,
  owns_sandbox: run.ownsSandbox,
  repo: run.spec.repo === undefined ? null : { ...run.spec.repo, ref: run.spec.repo.ref ?? null },
  project: run.spec.project ?? null,
  ticket: run.spec.ticket ?? null,
  labels: run.spec.labels ?? {},
  turn: run.turn,
  working: run.working,
  last_step: run.lastStep,
  last_seq: run.lastSeq,
  attempt: run.attempt,
  parent:
    run.parentRunId === null || run.parentStep === null
      ? null
      : { run_id: run.parentRunId, step: run.parentStep },
  created_at: time(run.createdAtMs)!,
  started_at: time(run.startedAtMs),
  ended_at: time(run.endedAtMs),
});

export const messageView = (message: RunMessageRecord): RunMessage => ({
  id: message.id,
  run_id: message.runId,
  number: message.number,
  kind: message.kind,
  urgency: message.urgency,
  priority: message.priority,
  text: message.text,
  from: message.sender,
  state: message.state,
  via: message.via === 'held' || message.via === 'doubt' ? null : message.via,
  accepted_at: time(message.acceptedAtMs)!,
  sent_at: time(message.sentAtMs),
  delivered_at: time(message.deliveredAtMs),
  expires_at: time(message.expiresAtMs),
  note: message.note,
});

export const stepView = (step: RunStepRecord): RunStep => ({
  number: step.number,
  kind: step.kind,
  title: step.title,
  seq: step.seq,
  turn: step.turn,
  at: time(step.atMs)!,
  snapshot_id: step.snapshotId,
  has_memory: step.hasMemory,
});
