import type { ToolUpdate } from './acp-schema.ts';
import type { AgentEvent } from './adapter.ts';
import { edited } from './edit.ts';
import { shown } from './json-line.ts';

interface Call {
  readonly tool: string;
  readonly kind: string;
  readonly input: string;
  /** It was told already that the agent uses it. */
  readonly told: boolean;
  /** The end of what it wrote so far, where the agent tells that in pieces. */
  readonly written: string;
}

export type ToolState = Readonly<Record<string, Call>>;

/** So many at once; of an agent that has more, the oldest are forgotten. */
const most = 100;
const kept = 8192;
/** Of what commands write in pieces: so much of each, and of so many at once. All of it is written down with each line. */
const keptWritten = 16_384;
const mostWriting = 8;

/** The tools that an agent uses: agents tell of each in several updates, and each in another order. */
export class AcpTools {
  readonly #calls: Map<string, Call>;

  constructor(state: ToolState = {}) {
    this.#calls = new Map(Object.entries(state));
  }

  get state(): ToolState {
    return Object.fromEntries(this.#calls);
  }

  update(given: ToolUpdate): AgentEvent[] {
    const { toolCallId, status } = given;
    const before = this.#calls.get(toolCallId);
    const hasEnded = status === 'completed' || status === 'failed';
    const title = given.title ?? '';
    const call: Call = {
      tool: (title || before?.tool || given.kind || 'tool').slice(0, 200),
      kind: given.kind ?? before?.kind ?? 'other',
      input: inputOf(given.rawInput) || before?.input || '',
      told: before?.told ?? false,
      written: `${before?.written ?? ''}${pieceOf(given)}`.slice(-keptWritten),
    };
    const events: AgentEvent[] = [];
    // Some tell of a call before they know what it is.
    const isKnown = call.input !== '' || status === 'in_progress' || hasEnded;
    if (!call.told && isKnown)
      events.push({
        type: 'agent.tool_use',
        data: {
          call_id: toolCallId,
          tool: call.tool,
          kind: call.kind,
          title: title || call.tool,
          input: call.input,
        },
      });
    this.#calls.delete(toolCallId);
    if (!hasEnded) this.#calls.set(toolCallId, { ...call, told: call.told || isKnown });
    for (const [oldest] of this.#calls) if (this.#calls.size > most) this.#calls.delete(oldest);
    for (const [id, older] of [...this.#calls].slice(0, -mostWriting))
      if (older.written !== '') this.#calls.set(id, { ...older, written: '' });
    if (hasEnded)
      events.push(...edits(given), {
        type: 'agent.tool_result',
        data: {
          call_id: toolCallId,
          tool: call.tool,
          ok: status === 'completed',
          output: outputOf(given) || call.written,
        },
      });
    return events;
  }

  /** Those that were under way when the turn ended came to nothing. */
  end(): void {
    this.#calls.clear();
  }
}

const pieceOf = ({ _meta }: ToolUpdate): string =>
  (_meta?.terminal_output_delta ?? _meta?.terminal_output)?.data ?? '';

const inputOf = (raw: unknown): string => {
  if (raw === undefined || raw === null) return '';
  const text = shown(raw, kept);
  return text === '{}' ? '' : text;
};

const edits = ({ content }: ToolUpdate): AgentEvent[] =>
  content.flatMap((part) =>
    part.type === 'diff' ? [edited(part.path, part.oldText ?? null, part.newText)] : [],
  );

const outputOf = ({ content, rawOutput }: ToolUpdate): string => {
  const said = content.flatMap((part) => (part.type === 'content' ? [part.content.text] : [])).join('\n');
  if (said !== '') return said;
  return rawOutput === undefined || rawOutput === null ? '' : shown(rawOutput);
};
