import type { AgentTemplate } from '@coppice/agents';
import {
  type AgentTemplateView,
  type Belonging,
  CoppiceError,
  type Diff,
  defaultProject,
  hasEnded,
  type IdSource,
  type listRunEventsQuery,
  type listRunsQuery,
  type Run,
  type RunComparison,
  type RunDetail,
  type RunEvent,
  type RunMessage,
  type RunResult,
  type RunStep,
  type StartRun,
  type TellRun,
  type Trajectory,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import { compareRuns } from './compare-runs.ts';
import type { Inbox } from './inbox.ts';
import { RunDriver, type RunDriverParts } from './run-driver.ts';
import type { RunLog } from './run-log.ts';
import { RunPause, type RunPauseParts } from './run-pause.ts';
import { messageView, runView, stepView } from './run-views.ts';
import type { StepMark } from './steps.ts';
import { trajectoryOf } from './trajectory.ts';

export interface RunServiceParts extends Omit<RunDriverParts, 'preparers' | 'completers'>, RunPauseParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly inbox: Inbox;
  readonly ids: IdSource;
  readonly sandboxId: (ref: string) => string;
  readonly destroySandbox: (sandboxId: string) => Promise<unknown>;
  readonly diff: (from: string, to: string) => Promise<Diff>;
}

/** Agents at work: starts them, tells them things, ends them. Each run is driven in the background. */
export class RunService {
  readonly #parts: RunServiceParts;
  readonly #pausing: RunPause;
  readonly #drivers = new Map<string, RunDriver>();
  readonly #preparers: ((run: RunRecord, sandboxId: string, signal: AbortSignal) => Promise<void>)[] = [];
  readonly #completers: ((run: RunRecord, signal: AbortSignal) => Promise<void>)[] = [];
  #closed = false;

  constructor(parts: RunServiceParts) {
    this.#parts = parts;
    this.#pausing = new RunPause(parts);
  }

  /** Takes up every run that has not ended, and ends what is left of those that have. */
  recover(): void {
    if (this.#closed) return;
    for (const run of this.#parts.state.runs.all()) {
      if (!hasEnded(run.state) || run.jobId !== null) this.#driver(run.id).begin();
      if (run.paused && run.state === 'running')
        void this.#pausing.recover(run).then(() => this.lookAt(run.id));
    }
  }

  /** From here on nothing is driven; agents work on. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#drivers.values()].map((driver) => driver.close()));
  }

  /** Work that belongs to the set-up of a run, such as files for its agent. It must be safe to repeat; the run fails where it throws. */
  beforeStarted(work: (run: RunRecord, sandboxId: string, signal: AbortSignal) => Promise<void>): void {
    this.#preparers.push(work);
  }

  /** Work that belongs to the end of a run, such as a pull request; the run is completing meanwhile, and fails where it throws. */
  beforeCompleted(work: (run: RunRecord, signal: AbortSignal) => Promise<void>): void {
    this.#completers.push(work);
  }

  /** With an id that the caller wrote down before, a repeated call starts nothing twice. */
  async start(spec: StartRun, { id: givenId }: { readonly id?: string } = {}): Promise<Run> {
    if (givenId !== undefined && this.#parts.state.runs.byId(givenId) !== undefined)
      return this.#view(givenId);
    const template = this.#parts.templates.get(spec.agent);
    const { profile } = template;
    const needsCommand = profile.adapter === 'command' && profile.command === undefined;
    if (needsCommand !== (spec.command !== undefined))
      throw new CoppiceError(
        'invalid_argument',
        needsCommand
          ? 'the agent `command` needs a command to start'
          : `the agent ${spec.agent} takes no command of its own`,
      );
    refuseBoth(spec);
    const given = spec.sandbox === undefined ? null : this.#parts.sandboxId(spec.sandbox);
    const id = this.#create(withTemplate(spec, template), profile.adapter, given, { id: givenId });
    this.#parts.journal.step('run.recorded');
    this.#driver(id).begin();
    return this.#view(id);
  }

  #create(
    spec: StartRun,
    adapter: RunRecord['adapter'],
    sandboxId: string | null,
    {
      parent,
      id = this.#parts.ids.next('run'),
    }: {
      readonly parent?: { readonly run: RunRecord; readonly step: number; readonly adapterState: unknown };
      readonly id?: string | undefined;
    },
  ): string {
    const { state, log, now } = this.#parts;
    const name = spec.name ?? `run-${id.slice(-8)}`;
    if (state.runs.byName(name) !== undefined)
      throw new CoppiceError('name_taken', `there is already a run named ${name}`);
    log.create({
      id,
      name,
      state: 'pending',
      outcome: null,
      reason:
        parent === undefined
          ? 'it was asked for'
          : `it was forked from step ${parent.step} of ${parent.run.name}`,
      paused: false,
      spec,
      adapter,
      sandboxId,
      ownsSandbox: sandboxId === null,
      turn: 0,
      working: false,
      lastStep: 0,
      lastSeq: 0,
      recordBytes: 0,
      attempt: 0,
      parentRunId: parent?.run.id ?? null,
      parentStep: parent?.step ?? null,
      jobId: null,
      cursor: 0,
      adapterState: parent?.adapterState ?? null,
      result: null,
      createdAtMs: now(),
      startedAtMs: null,
      endedAtMs: null,
    });
    return id;
  }

  async agents(): Promise<AgentTemplateView[]> {
    return this.#parts.templates.views();
  }

  async list(query: z.output<typeof listRunsQuery>): Promise<Run[]> {
    const wanted = query.label?.split(',').map((label) => label.split('=', 2) as [string, string?]) ?? [];
    const sandboxId = query.sandbox === undefined ? undefined : this.#parts.sandboxId(query.sandbox);
    return this.#parts.state.runs
      .all()
      .filter(
        (run) =>
          (query.state === undefined || run.state === query.state) &&
          (sandboxId === undefined || run.sandboxId === sandboxId) &&
          (query.project === undefined || this.#projectOf(run) === query.project) &&
          (query.before === undefined || run.id < query.before) &&
          wanted.every(([key, value]) => {
            const found = run.spec.labels?.[key];
            return found !== undefined && (value === undefined || found === value);
          }),
      )
      .slice(0, query.limit)
      .map(runView);
  }

  /** What it belongs to, by its id or name; undefined where there is none. */
  belonging(ref: string): Belonging | undefined {
    const { runs } = this.#parts.state;
    const run = runs.byId(ref) ?? runs.byName(ref);
    return run && { project: this.#projectOf(run), sandboxId: run.sandboxId ?? '', runId: run.id };
  }

  /** Where its sandbox is; once that is gone, where it was asked for. */
  #projectOf({ sandboxId, spec }: RunRecord): string {
    const sandbox = sandboxId === null ? undefined : this.#parts.state.sandboxes.byId(sandboxId);
    return sandbox?.project ?? spec.project ?? defaultProject;
  }

  async get(ref: string): Promise<RunDetail> {
    const run = this.find(ref);
    const { runs, runMessages } = this.#parts.state;
    return {
      ...runView(run),
      transitions: runs.transitions(run.id),
      waiting_messages: runMessages.inState(run.id, 'accepted').length,
    };
  }

  async result(ref: string): Promise<RunResult> {
    const run = this.find(ref);
    if (!hasEnded(run.state) || run.result === null)
      throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state}: it has no result yet`, {
        hint: `Watch it: \`coppice agent watch ${run.name}\`.`,
      });
    return run.result;
  }

  /** One that has ended, with all that was kept of it. */
  async remove(ref: string): Promise<void> {
    const { state, log, journal } = this.#parts;
    const run = this.find(ref);
    if (!hasEnded(run.state))
      throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state}`, {
        hint: `Stop it first: \`coppice agent stop ${run.name}\`.`,
      });
    await this.#drivers.get(run.id)?.idle();
    await this.#parts.steps.removeAll(run.id);
    await this.release(run.id);
    journal.commit((emit) => {
      state.runs.delete(run.id);
      emit('run.removed', null, { run: run.id, name: run.name });
    });
    log.forget(run.id);
    this.#drivers.delete(run.id);
  }

  /** Destroys the sandbox that was made for a run that has ended. What the run said and did stays on record. */
  async release(ref: string): Promise<void> {
    const { id, name, state } = this.find(ref);
    if (!hasEnded(state)) throw new CoppiceError('wrong_state', `run ${name} is ${state}`);
    await this.#drivers.get(id)?.idle();
    const run = this.find(id);
    if (!run.ownsSandbox) return;
    const sandboxId = run.sandboxId ?? this.#parts.setup.made(run);
    if (sandboxId === undefined) return;
    if (this.#parts.state.sandboxes.byId(sandboxId) !== undefined)
      await this.#parts.destroySandbox(sandboxId);
    this.#parts.log.commit(id, ({ update }) => update({ sandboxId: null }));
  }

  async events(
    ref: string,
    { after, limit, types }: z.output<typeof listRunEventsQuery>,
  ): Promise<{ events: RunEvent[]; last_seq: number }> {
    const run = this.find(ref);
    const events = await this.#parts.log.find(run.id, after, limit, types?.split(','));
    return { events, last_seq: run.lastSeq };
  }

  /** From after that number on, without a gap, until the signal. */
  async follow(
    ref: string,
    { after, types }: { readonly after: number; readonly types?: string | undefined },
    signal: AbortSignal,
  ): Promise<AsyncIterable<RunEvent>> {
    return this.#parts.log.follow(this.find(ref).id, after, types?.split(','), signal);
  }

  async trajectory(ref: string, { after, limit }: { after: number; limit: number }): Promise<Trajectory> {
    const { id } = this.find(ref);
    return trajectoryOf(this.#parts.log.pages(id, after), limit);
  }

  async body(ref: string, body: string): Promise<Buffer> {
    const run = this.find(ref);
    const bytes = this.#parts.state.runEvents.body(run.id, body);
    if (bytes === undefined) throw new CoppiceError('not_found', `run ${run.name} has no body ${body}`);
    return bytes;
  }

  /** A program inside has done something that is worth a step. */
  toolUsed(runId: string, tool: string): void {
    const driver = this.#driver(runId);
    driver.wantStep('tool', tool);
    driver.nudge();
  }

  /** Something happened that concerns what its agent is to be told. */
  lookAt(runId: string): void {
    this.#drivers.get(runId)?.nudge();
  }

  async tell(ref: string, input: TellRun): Promise<RunMessage> {
    const run = this.find(ref);
    this.#assertGoesOn(run, 'told anything');
    const message = this.#parts.inbox.accept(run.id, input);
    this.#driver(run.id).nudge();
    return messageView(message);
  }

  async messages(ref: string): Promise<RunMessage[]> {
    return this.#parts.state.runMessages.of(this.find(ref).id).map(messageView);
  }

  async withdraw(ref: string, messageId: string): Promise<RunMessage> {
    const { state, log, inbox } = this.#parts;
    const run = this.find(ref);
    const message = state.runMessages.byId(messageId);
    if (message === undefined || message.runId !== run.id)
      throw new CoppiceError('not_found', `run ${run.name} has no message ${messageId}`);
    if (message.state !== 'accepted' || (message.via !== null && message.via !== 'held'))
      throw new CoppiceError(
        'wrong_state',
        `message ${messageId} is ${message.state === 'accepted' ? 'on its way' : message.state}`,
      );
    log.commit(run.id, (entry) => inbox.expire(entry, messageId, 'it was taken back'));
    return messageView(state.runMessages.byId(messageId)!);
  }

  async interrupt(ref: string, reason: string): Promise<Run> {
    const run = this.find(ref);
    this.#assertGoesOn(run, 'interrupted');
    await this.#driver(run.id).interrupt(reason);
    return this.#view(run.id);
  }

  async pause(ref: string, reason?: string): Promise<Run> {
    const run = this.find(ref);
    await this.#pausing.pause(run, reason);
    this.#driver(run.id).nudge();
    return this.#view(run.id);
  }

  async resume(ref: string, reason?: string): Promise<Run> {
    const run = this.find(ref);
    await this.#pausing.resume(run, reason);
    this.#driver(run.id).nudge();
    return this.#view(run.id);
  }

  async stop(ref: string, reason: string): Promise<Run> {
    const run = this.find(ref);
    const driver = this.#driver(run.id);
    driver.finish('cancelled', reason);
    driver.begin();
    return this.#view(run.id);
  }

  /** A step of what is there now. */
  async takeStep(ref: string, title: string): Promise<RunStep> {
    const run = this.find(ref);
    this.#assertGoesOn(run, 'made a step of');
    return stepView(await this.#driver(run.id).takeStep('manual', title));
  }

  /** Goes on from a step, whether the run has ended or not. */
  async rewind(
    ref: string,
    { to, message = null }: { to: number; message?: string | null | undefined },
  ): Promise<Run> {
    const { log, steps, state, journal } = this.#parts;
    const run = this.find(ref);
    const step = steps.get(run, to);
    if (run.state === 'pending' || run.state === 'creating')
      throw new CoppiceError(
        'wrong_state',
        `run ${run.name} is ${run.state}: it has nothing to go back from yet`,
      );
    if (run.sandboxId === null || state.sandboxes.byId(run.sandboxId) === undefined)
      throw new CoppiceError('wrong_state', `the sandbox of run ${run.name} is gone`, {
        hint: `Fork it: \`coppice agent fork ${run.name} --from ${step.number}\`.`,
      });
    const driver = this.#driver(run.id);
    log.commit(run.id, (entry) => {
      state.intents.setRewind(run.id, { kind: 'run.rewind', to, message });
      entry.update({ paused: false, result: null, working: false });
      entry.transition('creating', `it goes back to step ${to}`);
    });
    journal.step('run.rewind-recorded');
    driver.nudge();
    driver.begin();
    return this.#view(run.id);
  }

  /** Another run, from a step of this one. */
  async fork(
    ref: string,
    input: { from?: number | undefined; message?: string | undefined; name?: string | undefined },
    { id: givenId }: { readonly id?: string } = {},
  ): Promise<Run> {
    const { steps } = this.#parts;
    if (givenId !== undefined && this.#parts.state.runs.byId(givenId) !== undefined)
      return this.#view(givenId);
    const run = this.find(ref);
    const step = steps.get(run, input.from);
    const { sandbox: _, name: __, labels, ...spec } = run.spec;
    const forked = this.#create(
      {
        ...spec,
        ...(labels === undefined ? {} : { labels: withoutOurs(labels) }),
        ...(input.name === undefined ? {} : { name: input.name }),
      },
      run.adapter,
      null,
      {
        parent: { run, step: step.number, adapterState: (step.mark as StepMark).adapterState },
        id: givenId,
      },
    );
    if (input.message !== undefined)
      this.#parts.inbox.accept(forked, {
        text: input.message,
        kind: 'user',
        urgency: 'queue',
        priority: 9,
        from: 'user',
      });
    this.#parts.log.commit(run.id, ({ emit }) =>
      emit('run.forked', 'user', { run_id: forked, step: step.number }),
    );
    this.#driver(forked).begin();
    return this.#view(forked);
  }

  /** The number of a step that it can be forked from: that one, or the last. */
  stepOf(ref: string, from: number | undefined): number {
    return this.#parts.steps.get(this.find(ref), from).number;
  }

  async compare(refA: string, refB: string): Promise<RunComparison> {
    const { state, diff } = this.#parts;
    const [a, b] = [this.find(refA), this.find(refB)];
    const onDisk = [a, b].every(
      ({ sandboxId }) => sandboxId !== null && state.sandboxes.byId(sandboxId) !== undefined,
    );
    return compareRuns(a, b, {
      get: (id) => state.runs.byId(id),
      steps: (id) => state.runSteps.of(id).map(stepView),
      diff: onDisk ? diff : undefined,
    });
  }

  async steps(ref: string): Promise<RunStep[]> {
    return this.#parts.state.runSteps.of(this.find(ref).id).map(stepView);
  }

  /** By id or name. */
  find(ref: string): RunRecord {
    const { runs } = this.#parts.state;
    const run = runs.byId(ref) ?? runs.byName(ref);
    if (run !== undefined) return run;
    throw new CoppiceError('not_found', `there is no run ${ref}`, {
      hint: 'List them with `coppice agent ls`, or start one with `coppice agent start`.',
    });
  }

  #assertGoesOn(run: RunRecord, what: string): void {
    if (!hasEnded(run.state)) return;
    throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state} and cannot be ${what}`, {
      hint: `Go on from one of its steps: \`coppice agent rewind ${run.name} --to N\`.`,
    });
  }

  #driver(id: string): RunDriver {
    if (this.#closed) throw new CoppiceError('unavailable', 'the daemon is stopping');
    const driver =
      this.#drivers.get(id) ??
      new RunDriver(id, { ...this.#parts, preparers: this.#preparers, completers: this.#completers });
    this.#drivers.set(id, driver);
    return driver;
  }

  #view(id: string): Run {
    return runView(this.#parts.log.get(id));
  }
}

/** What a run is of, as its branch, its forks are not of. */
const withoutOurs = (labels: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(labels).filter(([name]) => !name.startsWith('coppice.')));

/** What the caller leaves to the template. A sandbox that is there already is as it is. */
function withTemplate(spec: StartRun, { image, snapshot, limits }: AgentTemplate): StartRun {
  const { time_s, ...shape } = limits;
  const timed = { ...(time_s === undefined ? {} : { timeout_s: time_s }), ...spec };
  if (spec.sandbox !== undefined) return timed;
  const isPlaced = spec.image !== undefined || spec.from !== undefined;
  return {
    ...(isPlaced || image === undefined ? {} : { image }),
    ...(isPlaced || snapshot === undefined ? {} : { from: snapshot }),
    ...shape,
    ...timed,
  };
}

/** A sandbox that is there has all of this already. */
function refuseBoth(spec: StartRun): void {
  if (spec.sandbox === undefined) return;
  const shape = ['image', 'from', 'driver', 'cpus', 'memory_mb', 'disk_mb', 'pids', 'network'] as const;
  const given = shape.filter((field) => spec[field] !== undefined);
  if (given.length > 0)
    throw new CoppiceError(
      'invalid_argument',
      `with a sandbox that is there, ${given.join(', ')} cannot be given`,
    );
}
