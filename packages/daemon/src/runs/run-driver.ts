import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError, hasEnded, type RunOutcome, type RunStep } from '@coppice/protocol';
import type { ExitStatus, JobLog } from '@coppice/runtime';
import type { RewindIntent } from '../db/intent-table.ts';
import type { RunStepRecord } from '../db/run-step-table.ts';
import type { RunRecord } from '../db/run-table.ts';
import type { Log } from '../host/log.ts';
import { withGuest } from '../inside/guest-access.ts';
import type { Journal } from '../journal/journal.ts';
import { AgentLink, type AgentLinkParts } from './agent-link.ts';
import { Delivery } from './delivery.ts';
import type { Intake } from './intake.ts';
import { hasDied, sandboxDied } from './run-death.ts';
import type { RunEntry } from './run-log.ts';
import type { RunSetup } from './run-setup.ts';
import type { StepMark, Steps } from './steps.ts';

export interface RunDriverParts extends Omit<AgentLinkParts, 'wantStep'> {
  readonly journal: Journal;
  /** One for all runs. */
  readonly intake: Intake;
  readonly setup: RunSetup;
  readonly steps: Steps;
  readonly restore: (
    sandboxId: string,
    snapshotId: string,
    signal: AbortSignal,
  ) => Promise<{ readonly state: string; readonly with_memory: boolean }>;
  readonly logger: Log;
  readonly now: () => number;
  /** Called with the sandbox of a run before its agent starts, each time that it does: what they throw fails the run. */
  readonly preparers: readonly ((run: RunRecord, sandboxId: string, signal: AbortSignal) => Promise<void>)[];
  /** Settles when all that the gateway saw until now is known here. */
  readonly gatewayHeard: (signal: AbortSignal) => Promise<void>;
  /** Called while a run is completing, before it is completed: what they throw fails the run. */
  readonly completers: readonly ((run: RunRecord, signal: AbortSignal) => Promise<void>)[];
}

const readMs = 20_000;
/** What is taken in at once: others wait for so long. */
const readBytes = 65_536;
const killSignal = 9;
const interruptSignal = 2;

/** How long until input is tried again that the agent had no room for. */
const fullMs = 50;

/** Takes one run from where it stands to its end. What it does is written down before it has effects, so another daemon can go on. */
export class RunDriver {
  readonly #runId: string;
  readonly #parts: RunDriverParts;
  readonly #ending = new AbortController();
  /** Ends a wait for output; there is another afterwards. */
  #wake = new AbortController();
  readonly #link: AgentLink;
  readonly #delivery: Delivery;
  #work: Promise<void> | undefined;
  #isDriven = false;
  /** What is to become a step as soon as what there is was taken in. */
  #wanted: { readonly kind: RunStep['kind']; readonly title: string } | undefined;
  #stepping: Promise<unknown> = Promise.resolve();

  constructor(runId: string, parts: RunDriverParts) {
    this.#runId = runId;
    this.#parts = parts;
    this.#link = new AgentLink(runId, { ...parts, wantStep: (kind, title) => this.wantStep(kind, title) });
    this.#delivery = new Delivery({
      ...parts,
      link: this.#link,
      kill: (run) => this.#signal(run, killSignal),
    });
  }

  /** Goes on in the background. */
  begin(): void {
    if (this.#isDriven || this.#ending.signal.aborted) return;
    this.#isDriven = true;
    this.#work = this.#goOn().catch((error: unknown) => {
      if (!this.#ending.signal.aborted)
        this.#parts.logger.error({ err: error, run: this.#runId }, 'a run is not driven any more');
    });
  }

  /** Leaves the run as it is; the agent works on. */
  async close(): Promise<void> {
    this.#ending.abort(new CoppiceError('cancelled', 'the daemon was stopped meanwhile'));
    this.#wake.abort();
    await this.#work;
  }

  /** Settles when nothing is under way. */
  async idle(): Promise<void> {
    await this.#work;
  }

  /** Looks again at what there is to do. */
  nudge(): void {
    this.#wake.abort();
    this.#wake = new AbortController();
  }

  /** Ends it with an outcome, wherever it stands. */
  finish(outcome: RunOutcome, reason: string): void {
    const { log, inbox } = this.#parts;
    log.commit(this.#runId, (entry) => {
      if (hasEnded(entry.run.state)) return;
      inbox.expireOld(entry, true);
      this.#end(entry, outcome, reason);
    });
    this.nudge();
  }

  async interrupt(reason: string): Promise<void> {
    const run = this.#run;
    if (run.jobId === null || run.sandboxId === null) return;
    if (!this.#link.adapter.fetchesMessages) {
      if (run.working) this.#delivery.interrupt(reason);
      this.nudge();
      return;
    }
    await this.#signal(run, interruptSignal);
    this.#parts.log.commit(this.#runId, ({ emit }) =>
      emit('agent.interrupted', 'daemon', { reason, ended_processes: 0 }),
    );
  }

  /** One at a time; the run goes on meanwhile. */
  takeStep(kind: RunStep['kind'], title: string): Promise<RunStepRecord> {
    const taken = this.#stepping.then(() => this.#parts.steps.take(this.#run, kind, title));
    this.#stepping = taken.catch(() => {});
    return taken;
  }

  /** Something was done that is worth a step, where the run makes steps of such. */
  wantStep(kind: 'tool' | 'turn', title: string): void {
    const { steps } = this.#run.spec;
    if (steps === 'none' || (steps === 'turn' && kind === 'tool')) return;
    this.#wanted = { kind, title };
  }

  get #run(): RunRecord {
    return this.#parts.log.get(this.#runId);
  }

  async #goOn(): Promise<void> {
    try {
      while (!this.#ending.signal.aborted && (await this.#advance(this.#run)));
    } finally {
      this.#isDriven = false;
    }
  }

  /** From one state towards the next; false: it has ended, and nothing of it is left. */
  async #advance(run: RunRecord): Promise<boolean> {
    const { log, setup, journal, logger } = this.#parts;
    try {
      if (run.state === 'pending') {
        log.commit(run.id, (entry) => {
          entry.update({ attempt: run.attempt + 1 });
          entry.transition('creating', 'it is being set up');
        });
        journal.step('run.creating');
      } else if (run.state === 'creating') await this.#setUp(run);
      else if (run.state === 'running') await this.#drive(run);
      else if (run.state === 'completing') await this.#complete(run);
      else {
        await this.#endAgent(run);
        setup.forgetToken(run);
        // It may have been rewound meanwhile.
        return !hasEnded(this.#run.state);
      }
    } catch (error) {
      if (this.#ending.signal.aborted) return false;
      if (hasEnded(this.#run.state)) {
        // What is left of it is ended as soon as it can be reached.
        if (hasEnded(run.state)) await sleep(500, undefined, { signal: this.#ending.signal });
        return true;
      }
      const { message } = error as Error;
      if (!(error instanceof CoppiceError)) logger.error({ err: error, run: run.id }, 'a run failed');
      log.commit(run.id, (entry) => {
        entry.emit('agent.error', 'daemon', { message, fatal: true });
        this.#fail(entry, message);
      });
    }
    return true;
  }

  async #setUp(run: RunRecord): Promise<void> {
    const { log, setup, journal, state, preparers } = this.#parts;
    const { signal } = this.#ending;
    const rewind = state.intents.rewindOf(run.id);
    if (rewind !== undefined) {
      await this.#goBack(run, rewind);
      return;
    }
    const sandboxId = await this.#stage('sandbox', 'the sandbox', () => setup.sandbox(run, signal));
    journal.step('run.sandbox-made');
    if (run.sandboxId === null) log.commit(run.id, ({ update }) => update({ sandboxId }));
    if (run.spec.repo !== undefined && run.attempt === 1 && run.parentRunId === null)
      await this.#stage('clone', `a clone of ${run.spec.repo.url}`, () =>
        setup.clone(run, sandboxId, signal),
      );
    for (const prepare of preparers) await prepare(run, sandboxId, signal);
    journal.step('run.prepared');
    if (run.spec.steps !== 'none' && run.lastStep === 0)
      await this.takeStep('start', 'before the agent started');
    if (this.#run.state !== 'creating') return;
    const launch = this.#link.launch(run);
    await this.#stage('agent', `the agent ${run.spec.agent}`, async () => {
      const job = await setup.agent(run, sandboxId, launch);
      journal.step('run.agent-started');
      this.#link.open(run, (entry) => {
        entry.update({ jobId: job.id, cursor: 0, working: false });
        if (hasEnded(entry.run.state)) return;
        entry.transition('running', 'the agent works');
        entry.emit('agent.started', 'daemon', {
          agent: run.spec.agent,
          version: setup.versionOf(run),
          model: run.spec.model ?? null,
          session: null,
          attempt: run.attempt,
          resumed: run.attempt > 1,
        });
      });
    });
    journal.step('run.running');
  }

  /** To a step: files as they were, and where the step has memory the agent itself as it was. */
  async #goBack(run: RunRecord, { to, message }: RewindIntent): Promise<void> {
    const { log, steps, state, inbox, journal, restore } = this.#parts;
    const step = steps.get(run, to);
    const mark = step.mark as StepMark;
    if (message !== null)
      inbox.accept(run.id, {
        text: message,
        kind: 'user',
        urgency: 'queue',
        priority: 9,
        from: 'user',
        key: `rewind-${run.attempt}-${to}`,
      });
    await this.#signal(run, killSignal);
    const restored = await this.#stage('rewind', `back to step ${to}`, () =>
      restore(run.sandboxId!, step.snapshotId, this.#ending.signal),
    );
    const asItWas = restored.with_memory && restored.state === 'running' && mark.jobId !== null;
    log.commit(run.id, (entry) => {
      state.intents.clear(run.id);
      state.runs.dropInput(run.id);
      entry.update({
        adapterState: mark.adapterState,
        ...(asItWas
          ? { jobId: mark.jobId, cursor: mark.cursor }
          : { jobId: null, cursor: 0, attempt: run.attempt + 1 }),
      });
      entry.emit('run.rewound', 'user', { from_step: run.lastStep, to_step: to, with_memory: asItWas });
      if (asItWas) entry.transition('running', `it goes on from step ${to} with its memory`);
    });
    if (asItWas) await this.#link.adopt(this.#run);
    journal.step('run.rewound');
  }

  /** A part of the set-up that is seen. */
  async #stage<T>(stage: string, message: string, work: () => Promise<T>): Promise<T> {
    const { log, now } = this.#parts;
    const beganMs = now();
    const tell = (status: 'started' | 'done' | 'failed', said: string, took_ms: number | null) =>
      log.commit(this.#runId, ({ emit }) =>
        emit('run.setup', 'daemon', { stage, status, message: said, took_ms }),
      );
    tell('started', message, null);
    try {
      const result = await work();
      tell('done', message, now() - beganMs);
      return result;
    } catch (error) {
      if (!this.#ending.signal.aborted) tell('failed', (error as Error).message, now() - beganMs);
      throw error;
    }
  }

  async #drive(run: RunRecord): Promise<void> {
    const { guests, journal } = this.#parts;
    const wake = this.#wake.signal;
    const { sandboxId, jobId } = run;
    if (sandboxId === null || jobId === null)
      throw new CoppiceError('internal', `run ${run.name} is running without an agent`);
    if (this.#wanted !== undefined && !run.paused) await this.#takeWanted();
    if (run.paused) {
      await sleep(readMs, undefined, { signal: wake }).catch(() => {});
      return;
    }
    const { timeout_s } = run.spec;
    const leftMs = timeout_s === undefined ? readMs : run.startedAtMs! + timeout_s * 1000 - this.#parts.now();
    if (leftMs <= 0) {
      this.finish('failed', `it worked for longer than ${timeout_s} s`);
      return;
    }
    let read: JobLog | undefined;
    try {
      const waitMs = Math.min(readMs, leftMs, await this.#talk(run));
      const signal = AbortSignal.any([this.#ending.signal, wake]);
      if (this.#run.state !== 'running') return;
      read = await withGuest(guests, sandboxId, ({ guest }) =>
        guest.until(signal).readJob(jobId, { cursor: run.cursor, maxBytes: readBytes, waitMs }),
      );
    } catch (error) {
      if (wake.aborted || this.#ending.signal.aborted) return;
      await this.#unreached(run, error);
      return;
    }
    // It may have been ended or rewound meanwhile.
    const goesOn = () => {
      const now = this.#run;
      return now.state === 'running' && now.jobId === jobId && now.cursor === run.cursor;
    };
    if (!goesOn()) return;
    if (read.chunks.length === 0) {
      if (!read.running) this.#exited(run, read.exit);
      return;
    }
    await this.#parts.intake.take(() => {
      if (!goesOn() || this.#ending.signal.aborted) return;
      this.#link.take(read);
      journal.step('run.output-taken');
    });
  }

  /** Tells the agent what there is to tell; returns for how long nothing else has to be done. */
  async #talk(run: RunRecord): Promise<number> {
    const { lookAtMs, isDone } = await this.#delivery.next(run, this.#ending.signal);
    if (isDone) {
      this.#finished();
      return 0;
    }
    this.#parts.journal.step('talk.told');
    if (!(await this.#link.flush(run))) return fullMs;
    return lookAtMs === undefined ? readMs : Math.max(0, lookAtMs - this.#parts.now());
  }

  async #unreached(run: RunRecord, error: unknown): Promise<void> {
    if (error instanceof CoppiceError && error.code === 'unavailable') {
      await sleep(200, undefined, { signal: this.#ending.signal });
      return;
    }
    if (this.#parts.state.sandboxes.byId(run.sandboxId!)?.state === 'failed')
      throw new CoppiceError('unavailable', sandboxDied, { cause: error });
    throw new CoppiceError('unavailable', `the agent is gone: ${(error as Error).message}`, { cause: error });
  }

  /** It has ended its last turn, and nothing waits for it. */
  #finished(): void {
    const { stopReason, error, text } = this.#link.talk;
    const isWell = stopReason === 'end_turn';
    const reason = error ?? (isWell ? 'the agent ended its turn' : `the agent stopped: ${stopReason}`);
    this.#parts.log.commit(this.#runId, (entry) => {
      const outcome = isWell ? 'succeeded' : 'failed';
      const result = entry.run.result ?? { outcome, reason, text, exit_code: null };
      entry.update({ result });
      if (result.outcome === 'succeeded') entry.transition('completing', result.reason);
      else this.#fail(entry, result.reason);
    });
    this.#parts.journal.step('talk.finished');
  }

  /** A step that cannot be taken is no reason to end the work. */
  async #takeWanted(): Promise<void> {
    const { kind, title } = this.#wanted!;
    this.#wanted = undefined;
    try {
      await this.takeStep(kind, title);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      // As the agent: its tool calls ask for steps, as many as it likes.
      this.#parts.log.commit(this.#runId, ({ emit }) =>
        emit('agent.error', 'agent', {
          message: `a step could not be taken: ${(error as Error).message}`,
          fatal: false,
        }),
      );
    }
  }

  #exited(run: RunRecord, exit: ExitStatus | null): void {
    const { log, journal } = this.#parts;
    const code = exit?.code ?? null;
    log.commit(run.id, (entry) => {
      entry.emit('agent.exited', 'daemon', { exit_code: code, signal: exit?.signal ?? null });
      const said = entry.run.result;
      const success = said === null ? code === 0 : said.outcome === 'succeeded';
      const how = exit?.signal == null ? `it exited with ${code}` : `it was ended by signal ${exit.signal}`;
      const reason = said?.reason ?? how;
      const result = said ?? { outcome: success ? 'succeeded' : 'failed', reason, text: '', exit_code: null };
      entry.update({ result: { ...result, exit_code: code }, jobId: null, working: false });
      if (success) entry.transition('completing', reason);
      else this.#fail(entry, reason);
    });
    journal.step('run.exited');
  }

  async #complete(run: RunRecord): Promise<void> {
    const { log, completers, inbox, journal } = this.#parts;
    for (const complete of completers) await complete(run, this.#ending.signal);
    journal.step('run.completing');
    log.commit(run.id, (entry) => {
      inbox.expireOld(entry, true);
      this.#end(entry, 'succeeded', run.reason);
    });
    journal.step('run.completed');
  }

  /** What died may be started again, and its messages wait for that. */
  #fail(entry: RunEntry, reason: string): void {
    if (!hasDied(reason)) this.#parts.inbox.expireOld(entry, true);
    this.#end(entry, 'failed', reason);
  }

  /** In a transaction: the last transition, and what came of the run. */
  #end(entry: RunEntry, outcome: RunOutcome, reason: string): void {
    const { result } = entry.run;
    entry.update({ result: { text: '', exit_code: null, ...result, outcome, reason } });
    entry.emit('agent.completed', 'daemon', { success: outcome === 'succeeded', text: result?.text ?? '' });
    entry.transition(outcome === 'failed' ? 'failed' : 'completed', reason, outcome);
  }

  /** Of a run that has ended nothing runs on. */
  async #endAgent(run: RunRecord): Promise<void> {
    if (run.jobId === null) return;
    if (this.#parts.state.sandboxes.byId(run.sandboxId!)?.state === 'running')
      await this.#link.sweep(run, killSignal);
    await this.#signal(run, killSignal);
    this.#parts.log.commit(run.id, ({ update }) => update({ jobId: null }));
  }

  async #signal({ sandboxId, jobId }: RunRecord, signal: number): Promise<void> {
    if (
      sandboxId === null ||
      jobId === null ||
      this.#parts.state.sandboxes.byId(sandboxId)?.state !== 'running'
    )
      return;
    try {
      await withGuest(this.#parts.guests, sandboxId, ({ guest }) => guest.signalJob(jobId, signal));
    } catch (error) {
      // It has ended by itself, or its sandbox has.
      if (error instanceof CoppiceError && ['not_found', 'wrong_state'].includes(error.code)) return;
      throw error;
    }
  }
}
