import {
  type Conductor,
  CoppiceError,
  type EventBody,
  type GuardianFinding,
  type GuardianRule,
  hasEnded,
  type Intervention,
  type InterventionKind,
  type interveneSchema,
  type Judgement,
  type TellRun,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { InterventionRecord } from '../db/guardian-table.ts';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import type { RunLog } from '../runs/run-log.ts';
import { conduct } from './conductor.ts';
import type { RulesFile } from './guardian-file.ts';
import type { Judge } from './judge.ts';
import { RuleFold } from './rule-fold.ts';

export interface GuardianParts {
  readonly state: State;
  readonly log: RunLog;
  readonly logger: Log;
  readonly now: () => number;
  readonly file: RulesFile;
  readonly judge: Judge;
  readonly runs: {
    find(ref: string): RunRecord;
    tell(ref: string, input: TellRun): Promise<{ readonly id: string }>;
    withdraw(ref: string, messageId: string): Promise<unknown>;
    pause(ref: string, reason: string): Promise<unknown>;
    resume(ref: string, reason: string): Promise<unknown>;
    stop(ref: string, reason: string): Promise<unknown>;
    rewind(ref: string, input: { to: number; message?: string | undefined }): Promise<unknown>;
    takeStep(ref: string, title: string): Promise<unknown>;
  };
}

/** Of a rule that is met again and again in one run: how often it is acted upon. */
const mostPerRule = 20;
/** Of one answer to a dry run. */
const mostFound = 10_000;

const standingOf = ({ state, paused, lastStep, lastSeq }: RunRecord): Intervention['before'] => ({
  state,
  paused,
  step: lastStep,
  seq: lastSeq,
});

/**
 * Watches runs by rules. What it does is written down before it is done, with who decided, how the run stood before and how after, so
 * that it can be looked at and taken back.
 */
export class Guardian {
  readonly #parts: GuardianParts;
  readonly #folds = new Map<
    string,
    { fold: RuleFold; rules: readonly GuardianRule[]; seq: number; judged: number }
  >();
  readonly #locks = new KeyedLock();
  readonly #waiting = new Set<string>();
  #closed = false;

  constructor(parts: GuardianParts) {
    this.#parts = parts;
    parts.log.onCommitted((runId) => this.#lookSoon(runId));
  }

  status(): { trouble: string | null; rules: GuardianRule[]; judge: string | null } {
    const { file } = this.#parts;
    const { rules, judge } = file.read();
    return { trouble: file.trouble, rules, judge: judge?.model ?? null };
  }

  /** Goes on after the last daemon: what it had begun is done, and what happened meanwhile is looked at. */
  async recover(): Promise<void> {
    for (const record of this.#parts.state.guardian.begun())
      await this.#locks.exclusive(record.runId, () => this.#carryOut(record));
    this.lookAtAll();
  }

  /** Time passes also in runs where nothing happens. */
  lookAtAll(): void {
    for (const run of this.#parts.state.runs.all()) if (!hasEnded(run.state)) this.#lookSoon(run.id);
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const runId of this.#waiting) await this.#locks.exclusive(runId, async () => {});
  }

  list(ref: string): Intervention[] {
    return this.#parts.state.guardian.of(this.#parts.runs.find(ref).id).map(viewOf);
  }

  /** By a person. */
  async intervene(
    ref: string,
    { kind, message, reason, to }: z.output<typeof interveneSchema>,
    tokenId: string | undefined,
  ): Promise<Intervention> {
    const run = this.#parts.runs.find(ref);
    if (hasEnded(run.state) && kind !== 'rewind')
      throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state}`, {
        hint: `Go on from one of its steps: \`coppice agent rewind ${run.name} --to N\`.`,
      });
    return this.#locks.exclusive(run.id, () =>
      this.#act(run, {
        kind,
        rule: 'person',
        detail: reason,
        authority: this.#nameOf(tokenId),
        text: this.#textFor(run, kind, message, reason),
        target: kind === 'rewind' ? (to ?? run.lastStep) : null,
      }),
    );
  }

  /** The run is again as it was in the step before: what was only said is taken back, or the run goes back. */
  async revert(id: number, tokenId: string | undefined): Promise<Intervention> {
    const { state, runs, log } = this.#parts;
    const record = state.guardian.byId(id);
    if (record === undefined) throw new CoppiceError('not_found', `there is no intervention ${id}`);
    if (record.state !== 'done')
      throw new CoppiceError('wrong_state', `intervention ${id} is ${record.state}`, {
        hint: 'Only one that was done can be taken back, and only once.',
      });
    return this.#locks.exclusive(record.runId, async () => {
      const run = runs.find(record.runId);
      if (record.kind === 'pause' && run.paused)
        await runs.resume(run.id, `intervention ${id} was taken back`);
      else if (!(await this.#unsaid(record))) {
        if (record.before.step === 0)
          throw new CoppiceError('wrong_state', `run ${run.name} had no step before intervention ${id}`);
        await runs.rewind(run.id, { to: record.before.step });
      }
      log.commit(run.id, ({ emit }) => {
        state.guardian.update(id, { state: 'reverted', revertedBy: this.#nameOf(tokenId) });
        emit('guardian.reverted', 'user', { intervention: id, to_step: record.before.step });
      });
      return viewOf(state.guardian.byId(id)!);
    });
  }

  /** Nothing is done: the same fold over what is on record. */
  async dryRun(
    ref: string,
    rules: readonly GuardianRule[] | undefined,
  ): Promise<{ findings: GuardianFinding[]; events: number }> {
    const run = this.#parts.runs.find(ref);
    const fold = new RuleFold(rules ?? this.#parts.file.read().rules, this.#whole(run.id));
    const findings: GuardianFinding[] = [];
    let events = 0;
    for await (const page of this.#parts.log.pages(run.id, 0)) {
      for (const event of page) findings.push(...fold.feed(event));
      events += page.length;
      if (findings.length > mostFound)
        throw new CoppiceError(
          'too_large',
          `these rules are met more than ${mostFound} times in run ${run.name}`,
          {
            hint: 'Try fewer rules at once.',
          },
        );
    }
    return { findings, events };
  }

  async judge(ref: string): Promise<Judgement> {
    const run = this.#parts.runs.find(ref);
    const { judge } = this.#parts.file.read();
    const judgement = await this.#parts.judge.score(run, judge?.model);
    this.#parts.log.commit(run.id, ({ emit }) => emit('guardian.judged', 'daemon', judgement));
    return judgement;
  }

  async conductor(): Promise<Conductor> {
    const { state, log } = this.#parts;
    const runs = state.runs.all().filter((run) => !hasEnded(run.state));
    return conduct(runs, (runId) => log.pages(runId, 0));
  }

  #lookSoon(runId: string): void {
    if (this.#closed || this.#waiting.has(runId)) return;
    const { rules, judge } = this.#parts.file.read();
    if (rules.length === 0 && judge === undefined) return;
    this.#waiting.add(runId);
    setImmediate(() => {
      this.#locks
        .exclusive(runId, async () => {
          this.#waiting.delete(runId);
          await this.#look(runId);
        })
        .catch((error: unknown) =>
          this.#parts.logger.error({ err: error, run: runId }, 'the guardian failed on a run'),
        );
    });
  }

  async #look(runId: string): Promise<void> {
    const { state, log, now } = this.#parts;
    const run = state.runs.byId(runId);
    if (this.#closed || run === undefined) return;
    const seen = this.#foldOf(runId);
    const position = state.guardian.position(runId);
    const findings: GuardianFinding[] = [];
    const met = new Map<string, number>();
    for await (const page of log.pages(runId, seen.seq)) {
      for (const event of page) {
        const found = seen.fold.feed(event);
        seen.seq = event.seq;
        // Up to there the last daemon has looked, and acted.
        if (event.seq <= position) continue;
        for (const finding of found) {
          const times = (met.get(finding.rule) ?? 0) + 1;
          met.set(finding.rule, times);
          if (times <= mostPerRule) findings.push(finding);
        }
      }
    }
    findings.push(...seen.fold.tick(now()));
    if (hasEnded(run.state)) {
      this.#folds.delete(runId);
      state.guardian.setPosition(runId, seen.seq);
      return;
    }
    for (const finding of findings) await this.#meet(runId, finding, seen.rules);
    if (seen.seq > position) state.guardian.setPosition(runId, seen.seq);
    await this.#askJudge(runId, seen);
  }

  async #meet(runId: string, finding: GuardianFinding, rules: readonly GuardianRule[]): Promise<void> {
    const { state } = this.#parts;
    const run = state.runs.byId(runId);
    const rule = rules.find(({ name }) => name === finding.rule);
    if (run === undefined || hasEnded(run.state) || rule === undefined) return;
    if (state.guardian.of(runId).filter((past) => past.rule === rule.name).length >= mostPerRule) return;
    const { action: kind, message } = rule;
    const target = kind === 'rewind' ? this.#stepBefore(runId, finding.seq) : null;
    await this.#act(
      run,
      {
        kind: kind === 'rewind' && target === null ? 'pause' : kind,
        rule: rule.name,
        detail: finding.detail,
        authority: 'guardian',
        text: this.#textFor(run, kind, message, finding.detail),
        target,
      },
      finding.seq,
    );
  }

  async #askJudge(runId: string, seen: { fold: RuleFold; judged: number }): Promise<void> {
    const { judge } = this.#parts.file.read();
    if (judge === undefined || seen.fold.tools - seen.judged < judge.every_tools) return;
    seen.judged = seen.fold.tools;
    const { status, score, reason } = await this.judge(runId);
    const run = this.#parts.state.runs.byId(runId);
    if (status !== 'scored' || score === null || score >= judge.threshold) return;
    if (run === undefined || hasEnded(run.state)) return;
    const target = judge.action === 'rewind' && run.lastStep > 0 ? run.lastStep : null;
    await this.#act(run, {
      kind: judge.action,
      rule: 'judge',
      detail: `scored ${score}: ${reason}`.slice(0, 500),
      authority: 'guardian',
      text: this.#textFor(run, judge.action, undefined, reason),
      target,
    });
  }

  async #act(
    run: RunRecord,
    what: Pick<InterventionRecord, 'kind' | 'rule' | 'detail' | 'authority' | 'text' | 'target'>,
    seenUpTo?: number,
  ): Promise<Intervention> {
    const { state, log, now, runs } = this.#parts;
    // What would be lost is kept first, so that it can be brought back.
    if (['pause', 'stop', 'rewind'].includes(what.kind) && run.state === 'running' && !run.paused)
      await runs.takeStep(run.id, `before ${what.kind}`).catch((error: unknown) => {
        if (!(error instanceof CoppiceError)) throw error;
      });
    const id = log.commit(run.id, ({ run: current, emit }) => {
      const inserted = state.guardian.insert({
        ...what,
        runId: run.id,
        before: standingOf(current),
        atMs: now(),
      });
      if (seenUpTo !== undefined) state.guardian.setPosition(run.id, seenUpTo);
      emit('guardian.intervened', 'daemon', {
        intervention: inserted,
        kind: what.kind,
        rule: what.rule,
        detail: what.detail,
        authority: what.authority,
      });
      return inserted;
    });
    await this.#carryOut(state.guardian.byId(id)!);
    return viewOf(state.guardian.byId(id)!);
  }

  /** May be done again after a crash: a message has a key of its own, and the rest changes nothing the second time. */
  async #carryOut(record: InterventionRecord): Promise<void> {
    const { state, runs } = this.#parts;
    const { id, runId, kind, text, target, detail } = record;
    try {
      if (state.runs.byId(runId) === undefined) throw new CoppiceError('not_found', 'the run is gone');
      let messageId: string | null = null;
      if (kind === 'pause') await runs.pause(runId, detail);
      else if (kind === 'stop') await runs.stop(runId, detail);
      else if (kind === 'rewind') await runs.rewind(runId, { to: target ?? 1, message: text });
      else {
        const told = await runs.tell(runId, {
          text,
          kind: kind === 'constrain' ? 'constraint' : 'nudge',
          urgency: kind === 'remind' ? 'steer' : 'now',
          priority: 8,
          from: 'guardian',
          key: `intervention-${id}`,
        });
        messageId = told.id;
      }
      const after = standingOf(runs.find(runId));
      state.guardian.update(id, { state: 'done', after, messageId });
    } catch (error) {
      if (!(error instanceof CoppiceError)) throw error;
      state.guardian.update(id, { state: 'failed', error: error.message });
    }
  }

  /** A message that did not leave yet is withdrawn, and nothing else has to be undone. */
  async #unsaid({ runId, messageId }: InterventionRecord): Promise<boolean> {
    if (messageId === null) return false;
    try {
      await this.#parts.runs.withdraw(runId, messageId);
      return true;
    } catch (error) {
      if (error instanceof CoppiceError) return false;
      throw error;
    }
  }

  #textFor(run: RunRecord, kind: InterventionKind, message: string | undefined, detail: string): string {
    const said = message ?? `Stop and look: ${detail}.`;
    const task = kind === 'refocus' ? ` Your task is: ${run.spec.task.slice(0, 4000)}` : '';
    return `[GUARDIAN] ${said}${task}`.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, ' ').slice(0, 16_000);
  }

  /** The last step that was taken before that event and is still there. */
  #stepBefore(runId: string, seq: number): number | null {
    const steps = this.#parts.state.runSteps.of(runId);
    return steps.filter((step) => step.seq < seq && step.snapshotId !== null).at(-1)?.number ?? null;
  }

  #foldOf(runId: string) {
    const { rules } = this.#parts.file.read();
    const known = this.#folds.get(runId);
    if (known !== undefined && known.rules === rules) return known;
    const fresh = {
      fold: new RuleFold(rules, this.#whole(runId)),
      rules,
      seq: 0,
      judged: known?.judged ?? 0,
    };
    this.#folds.set(runId, fresh);
    return fresh;
  }

  #whole(runId: string): (body: EventBody) => string {
    return ({ text, ref }) =>
      ref === null ? text : (this.#parts.state.runEvents.body(runId, ref)?.toString('utf8') ?? text);
  }

  #nameOf(tokenId: string | undefined): string {
    return this.#parts.state.tokens.all().find(({ id }) => id === tokenId)?.name ?? 'unknown';
  }
}

const viewOf = (record: InterventionRecord): Intervention => ({
  id: record.id,
  run_id: record.runId,
  kind: record.kind,
  rule: record.rule,
  detail: record.detail,
  authority: record.authority,
  state: record.state,
  before: record.before,
  after: record.after,
  message_id: record.messageId,
  error: record.error,
  at: new Date(record.atMs).toISOString(),
  reverted_by: record.revertedBy,
});
