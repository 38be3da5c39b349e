import type { AgentEvent } from './adapter.ts';

type Kind = 'agent.message' | 'agent.thinking';

export interface FlowState {
  readonly kind: Kind;
  readonly text: string;
}

/** What is longer becomes several events. */
const longest = 32_768;

/** Joins the pieces in which agents say something: one event for all until something else comes. */
export class TextFlow {
  #held: FlowState | undefined;

  constructor(state?: FlowState | null) {
    this.#held = state ?? undefined;
  }

  get state(): FlowState | null {
    return this.#held ?? null;
  }

  add(kind: Kind, piece: string): AgentEvent[] {
    const before = this.#held?.kind === kind ? [] : this.end();
    const text = (this.#held?.text ?? '') + piece;
    this.#held = text === '' ? undefined : { kind, text };
    return text.length > longest ? [...before, ...this.end()] : before;
  }

  end(): AgentEvent[] {
    const held = this.#held;
    this.#held = undefined;
    return held === undefined ? [] : [{ type: held.kind, data: { text: held.text } }];
  }
}
