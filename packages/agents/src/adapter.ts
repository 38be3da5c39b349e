import type { EventDraft, RunEventType } from '@coppice/protocol';

/** Something that an agent did, before it has a number. */
export type AgentEvent = {
  [T in RunEventType]: { readonly type: T; readonly data: EventDraft<T> };
}[RunEventType];

/** What the agent is started for, and where. */
export interface AgentTask {
  readonly runId: string;
  readonly task: string;
  readonly cwd: string;
  readonly model: string | null;
  /** The command of `command` agents. */
  readonly command?: string | readonly string[] | undefined;
}

/** How its process is started in the sandbox. */
export interface Launch {
  readonly command: string | readonly string[];
  /** It is written to; otherwise its standard input is empty. */
  readonly takesInput?: boolean;
  readonly env: Readonly<Record<string, string>>;
  /** Written before the start, below the home directory of the agent's user. */
  readonly files: readonly { readonly path: string; readonly text: string }[];
}

/** A message on its way to an agent; without an id, a text that needs no proof of its arrival. */
export interface Outgoing {
  readonly id: string | null;
  readonly text: string;
}
export interface OutgoingMessage extends Outgoing {
  readonly id: string;
}

/**
 * What follows from something that happened. An adapter does nothing itself: whoever drives it writes down the events and its new state
 * together, and only then gives the input to the agent. So the death of the daemon at any moment loses and doubles nothing.
 */
export interface Reaction {
  readonly events?: readonly AgentEvent[];
  /** Lines for the standard input of the agent, without their ends. */
  readonly input?: readonly string[];
  /** Messages that the agent has taken, and how. */
  readonly taken?: readonly { readonly id: string; readonly via: 'steer' | 'prompt' }[];
  /** Messages that it refused: they are held until its turn ends. */
  readonly refused?: readonly string[];
  /** It can be given a prompt. `resumed`: it goes on with the session that it had before its process was started again. */
  readonly ready?: { readonly resumed: boolean; readonly session: string | null };
  /** `cancelled`: it was interrupted. `error`: it gave up, with what it said. Everything else is an end of its own choice. */
  readonly turnEnded?: { readonly stopReason: string; readonly error?: string };
  /** It cannot go on, and starting it again would not help. */
  readonly broken?: string;
  /** An answer to a ping. */
  readonly pong?: string;
}

/** `native`: a message can go into the turn that is under way. `none`: it waits, or the turn is interrupted. */
export type Steering = 'native' | 'none';

/**
 * Speaks with one agent: it turns lines that the agent writes into what happened, and what is wanted of the agent into lines. Lines from
 * agents are hostile input.
 */
export interface AgentAdapter {
  /** Its messages are fetched by a program inside, and not written into its input. */
  readonly fetchesMessages: boolean;
  /** What `line` is given: each line, or all that came at once. */
  readonly framing: 'lines' | 'chunks';
  readonly steering: Steering;
  /** A message that went into a turn is in its session also when the turn is interrupted before its model saw it. */
  readonly keepsSteered: boolean;
  /** It can go on with a session after its process ended. */
  readonly canResume: boolean;
  /** All that it knows, as JSON: another adapter that is made with it goes on. */
  readonly state: unknown;
  launch(task: AgentTask): Launch;
  /** After its process was started, for the first time or again. */
  open(task: AgentTask): Reaction;
  line(stream: 'stdout' | 'stderr', line: string): Reaction;
  /** A turn. Only while none is under way. */
  prompt(messages: readonly Outgoing[]): Reaction;
  /** Into the turn that is under way; undefined where the agent has no way for that, or not yet. */
  steer(message: OutgoingMessage): Reaction | undefined;
  /** Ends the turn that is under way. */
  interrupt(): Reaction;
  /** Whether its loop answers; undefined where it cannot be asked. */
  ping(token: string): Reaction | undefined;
}
