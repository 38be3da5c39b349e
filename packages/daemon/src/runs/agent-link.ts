import {
  type AgentAdapter,
  type AgentTask,
  type AgentTemplates,
  createAdapter,
  type Launch,
  type Reaction,
} from '@coppice/agents';
import { CoppiceError } from '@coppice/protocol';
import type { JobLog } from '@coppice/runtime';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import { type GuestAccess, withGuest } from '../inside/guest-access.ts';
import type { Inbox } from './inbox.ts';
import { OutputLines } from './output-lines.ts';
import type { RunEntry, RunLog } from './run-log.ts';
import { markerVariable } from './run-setup.ts';

export interface AgentLinkParts {
  readonly state: State;
  readonly log: RunLog;
  readonly inbox: Inbox;
  readonly guests: GuestAccess;
  readonly templates: AgentTemplates;
  /** Something was done that is worth a step. */
  readonly wantStep: (kind: 'tool' | 'turn', title: string) => void;
}

/** How far the talk with an agent has come. */
export interface Talk {
  readonly isReady: boolean;
  /** It goes on with the session of a process before. */
  readonly resumed: boolean;
  readonly wasPrompted: boolean;
  /** The turn is to end, by its own will or otherwise. */
  readonly interruption: {
    readonly atMs: number;
    readonly reason: string;
    readonly swept: number | null;
  } | null;
  /** Why the last turn ended, and what the agent said of an error. */
  readonly stopReason: string | null;
  readonly error: string | null;
  /** Processes of the agent itself, which an interrupt leaves alone; null: they are to be looked up. */
  readonly spared: readonly number[] | null;
  /** The last thing that it said. */
  readonly text: string;
}

const silence: Talk = {
  isReady: false,
  resumed: false,
  wasPrompted: false,
  interruption: null,
  stopReason: null,
  error: null,
  spared: null,
  text: '',
};

/** What of an adapter is written down with the run. */
interface Saved {
  readonly adapter: unknown;
  readonly lines: unknown;
  /** How many bytes were ever meant for the standard input of this attempt. */
  readonly inputEnd: number;
  readonly talk: Talk;
}

const longestText = 65_536;

/**
 * The link to the agent of one run: its adapter, what it wrote and what is to be written to it. Everything that happens is written down
 * in one transaction together with what the adapter knows then; input goes out afterwards, each byte by its place.
 */
export class AgentLink {
  readonly #runId: string;
  readonly #parts: AgentLinkParts;
  #adapter: AgentAdapter | undefined;
  #lines = new OutputLines(undefined);
  #inputEnd = 0;
  #talk = silence;

  constructor(runId: string, parts: AgentLinkParts) {
    this.#runId = runId;
    this.#parts = parts;
  }

  get adapter(): AgentAdapter {
    return this.#adapter ?? this.restore();
  }

  get talk(): Talk {
    if (this.#adapter === undefined) this.restore();
    return this.#talk;
  }

  /** As it was when it was last written down. */
  restore(): AgentAdapter {
    const run = this.#parts.log.get(this.#runId);
    const saved = (run.adapterState ?? undefined) as Saved | undefined;
    this.#lines = new OutputLines(saved?.lines);
    this.#inputEnd = saved?.inputEnd ?? 0;
    this.#talk = saved?.talk ?? silence;
    this.#adapter = createAdapter(this.#parts.templates.get(run.spec.agent).profile, saved?.adapter);
    return this.#adapter;
  }

  launch(run: RunRecord): Launch {
    return this.restore().launch(taskOf(run));
  }

  /** Its process is new: what the one before wrote and was to be given is over. */
  open(run: RunRecord, also: (entry: RunEntry) => void): void {
    const { state, inbox } = this.#parts;
    const { adapter } = this;
    this.#lines = new OutputLines(undefined);
    this.#inputEnd = 0;
    this.#talk = silence;
    this.apply((entry) => {
      state.runs.dropInput(run.id);
      inbox.release(entry, 'held');
      inbox.doubt(entry, 'steer', 'prompt');
      also(entry);
      return adapter.open(taskOf(run));
    });
  }

  /** Its process came back with its memory: how much of its input it has is for it to say. */
  async adopt({ sandboxId, jobId }: RunRecord): Promise<void> {
    this.restore();
    if (this.adapter.fetchesMessages) return;
    this.#inputEnd = await withGuest(this.#parts.guests, sandboxId!, ({ guest }) =>
      guest.writeJob(jobId!, 0, Buffer.alloc(0)),
    );
  }

  /** What follows from something, in one transaction, and how the talk stands then. */
  apply(work: (entry: RunEntry) => Reaction, talk: Partial<Talk> = {}): void {
    try {
      this.#parts.log.commit(this.#runId, (entry) => {
        this.#talk = { ...this.talk, ...talk };
        this.#take(entry, work(entry));
        this.#save(entry);
      });
    } catch (error) {
      // What the adapter thinks has happened has not.
      this.restore();
      throw error;
    }
  }

  /** What it wrote. */
  take({ chunks, cursor, droppedBytes }: JobLog): void {
    const { adapter } = this;
    this.apply((entry) => {
      entry.update({ cursor });
      // As the agent: a sandbox decides how often that is so.
      if (droppedBytes > 0)
        entry.emit('agent.error', 'agent', {
          message: `${droppedBytes} bytes of output were dropped before they could be read`,
          fatal: false,
        });
      for (const { stream, text } of this.#lines.take(chunks, adapter.framing))
        this.#take(entry, adapter.line(stream, text));
      return {};
    });
  }

  /** Gives the agent what is meant for it; false: it has no room for all of it now. */
  async flush({ sandboxId, jobId }: RunRecord): Promise<boolean> {
    const { state, guests } = this.#parts;
    const waiting = state.runs.input(this.#runId);
    if (waiting.length === 0) return true;
    const bytes = Buffer.concat(waiting.map((part) => part.bytes));
    const start = waiting[0]!.start;
    const end = await withGuest(guests, sandboxId!, ({ guest }) => guest.writeJob(jobId!, start, bytes));
    // What was taken of a part stays with it: the place says what is new.
    state.runs.dropInput(this.#runId, end);
    return end >= start + bytes.length;
  }

  /** What the agent has running besides itself; all of it ends with a signal. */
  async sweep({ id, sandboxId, jobId }: RunRecord, signal: number): Promise<number[]> {
    try {
      return await withGuest(this.#parts.guests, sandboxId!, ({ guest }) =>
        guest.sweepJob(jobId!, {
          marker: `${markerVariable}=${id}`,
          spared: signal === 0 ? [] : (this.talk.spared ?? []),
          signal,
        }),
      );
    } catch (error) {
      // The agent has ended meanwhile, which its output tells; or an older version started the sandbox, and cannot look.
      const passing = ['not_found', 'wrong_state', 'unsupported'];
      if (error instanceof CoppiceError && passing.includes(error.code)) return [];
      throw error;
    }
  }

  #take(entry: RunEntry, reaction: Reaction): void {
    const { inbox, wantStep } = this.#parts;
    for (const { type, data } of reaction.events ?? []) {
      entry.emit(type, 'agent', data as never);
      if (type === 'agent.tool_result') wantStep('tool', data.tool);
      if (type === 'agent.message') this.#talk = { ...this.#talk, text: data.text.slice(0, longestText) };
    }
    for (const { id, via } of reaction.taken ?? []) inbox.sent(entry, id, via);
    for (const id of reaction.refused ?? []) inbox.held(entry, id);
    for (const line of reaction.input ?? []) {
      const bytes = Buffer.from(`${line}\n`);
      this.#parts.state.runs.addInput(this.#runId, this.#inputEnd, bytes);
      this.#inputEnd += bytes.length;
    }
    if (reaction.ready !== undefined) {
      const { resumed } = reaction.ready;
      this.#talk = { ...this.#talk, isReady: true, resumed };
      if (!resumed) inbox.settle(entry, []);
    }
    if (reaction.turnEnded !== undefined) this.#turnEnded(entry, reaction.turnEnded);
    if (reaction.broken !== undefined)
      throw new CoppiceError('unavailable', `the agent cannot work: ${reaction.broken}`);
  }

  #turnEnded(entry: RunEntry, { stopReason, error }: NonNullable<Reaction['turnEnded']>): void {
    if (!entry.run.working) return;
    const spared = this.#talk.interruption === null ? null : this.#talk.spared;
    this.#talk = { ...this.#talk, stopReason, error: error ?? null, spared };
    entry.update({ working: false });
    entry.emit('agent.turn_ended', 'agent', { turn: entry.run.turn, stop_reason: stopReason });
    this.#parts.wantStep('turn', `turn ${entry.run.turn}`);
  }

  #save(entry: RunEntry): void {
    const saved: Saved = {
      adapter: this.#adapter?.state ?? null,
      lines: this.#lines.state,
      inputEnd: this.#inputEnd,
      talk: this.#talk,
    };
    entry.update({ adapterState: saved });
  }
}

const taskOf = (run: RunRecord): AgentTask => ({
  runId: run.id,
  task: run.spec.task,
  cwd: workingDirectory(run),
  model: run.spec.model ?? null,
  command: run.spec.command,
});

const workingDirectory = ({ spec }: RunRecord): string => spec.cwd ?? spec.repo?.path ?? '/workspace';
