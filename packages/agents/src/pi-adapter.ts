import { z } from 'zod';
import type {
  AgentAdapter,
  AgentEvent,
  AgentTask,
  Launch,
  Outgoing,
  OutgoingMessage,
  Reaction,
  Steering,
} from './adapter.ts';
import { cut, parseLine, shown, someOf } from './json-line.ts';
import { launchOf } from './launch-of.ts';
import { marked, messagesIn, promptOf } from './marked-message.ts';
import type { PiProfile } from './profile.ts';
import { type FlowState, TextFlow } from './text-flow.ts';

type Asked =
  | { readonly for: 'state' | 'abort' | 'clear' | 'prompt' }
  | { readonly for: 'steer'; readonly message: string }
  | { readonly for: 'ping'; readonly token: string };

interface PiState {
  readonly nextId: number;
  readonly asked: Readonly<Record<string, Asked>>;
  /** Also the name of the session: pi opens one by its name, or makes it. */
  readonly session: string | null;
  readonly isWorking: boolean;
  readonly isInterrupted: boolean;
  readonly error: string | null;
  readonly flow: FlowState | null;
}

const nobody: PiState = {
  nextId: 1,
  asked: {},
  session: null,
  isWorking: false,
  isInterrupted: false,
  error: null,
  flow: null,
};

const text = z.object({ type: z.literal('text'), text: z.string() });
const texts = (value: unknown): string =>
  someOf(text, 1000)
    .parse(value)
    .map((part) => part.text)
    .join('\n');

const responseSchema = z.object({
  type: z.literal('response'),
  id: z.string().max(50).optional(),
  success: z.boolean(),
  error: cut(4096).optional(),
  data: z.unknown().optional(),
});

const eventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('message_update'),
    assistantMessageEvent: z.object({ type: z.string(), delta: z.string().optional() }),
  }),
  z.object({
    type: z.literal('message_end'),
    message: z.object({
      role: z.string(),
      stopReason: z.string().optional(),
      errorMessage: cut(4096).optional(),
    }),
  }),
  z.object({
    type: z.literal('tool_execution_start'),
    toolCallId: z.string().max(200),
    toolName: cut(200),
    args: z.unknown().optional(),
  }),
  z.object({
    type: z.literal('tool_execution_end'),
    toolCallId: z.string().max(200),
    toolName: cut(200),
    isError: z.boolean().catch(false),
    result: z.object({ content: z.unknown().optional() }).catch({ content: [] }),
  }),
  z.object({ type: z.literal('agent_settled') }),
]);
type PiEvent = z.output<typeof eventSchema>;

const stateSchema = z.object({ messageCount: z.int().min(0).catch(0) });
const clearedSchema = z.object({
  steering: someOf(z.string(), 1000),
  followUp: someOf(z.string(), 1000),
});

const kinds: ReadonlyMap<string, string> = new Map([
  ['bash', 'execute'],
  ['read', 'read'],
  ['edit', 'edit'],
  ['write', 'edit'],
  ['grep', 'search'],
  ['find', 'search'],
  ['ls', 'search'],
]);

/** pi, over its own protocol: one JSON object in each line. As `AcpAdapter`, all it knows between two lines is `state`. */
export class PiAdapter implements AgentAdapter {
  readonly fetchesMessages = false;
  readonly framing = 'lines';
  readonly steering: Steering = 'native';
  readonly keepsSteered = false;
  readonly canResume = true;

  readonly #profile: PiProfile;
  #state: PiState;
  #flow: TextFlow;

  constructor(profile: PiProfile, state: unknown) {
    this.#profile = profile;
    this.#state = { ...nobody, ...(state as PiState | null | undefined) };
    this.#flow = new TextFlow(this.#state.flow);
  }

  get state(): PiState {
    return { ...this.#state, flow: this.#flow.state };
  }

  launch(task: AgentTask): Launch {
    return launchOf(this.#profile, task, ['--session-id', this.#state.session ?? task.runId]);
  }

  open({ runId }: AgentTask): Reaction {
    this.#state = { ...nobody, session: this.#state.session ?? runId };
    this.#flow = new TextFlow();
    return this.#ask({ type: 'get_state' }, { for: 'state' });
  }

  line(stream: 'stdout' | 'stderr', line: string): Reaction {
    const value = stream === 'stdout' ? parseLine(line) : undefined;
    if (value === undefined) return { events: [{ type: 'agent.output', data: { stream, text: line } }] };
    const event = eventSchema.safeParse(value);
    if (event.success) return this.#happened(event.data);
    const response = responseSchema.safeParse(value);
    if (!response.success) return {};
    const { id = '', success, data, error = 'it gave no reason' } = response.data;
    if (!Object.hasOwn(this.#state.asked, id)) return {};
    const { [id]: asked, ...others } = this.#state.asked;
    this.#set({ asked: others });
    return this.#answered(asked!, success ? undefined : error, data);
  }

  prompt(messages: readonly Outgoing[]): Reaction {
    this.#set({ isWorking: true, isInterrupted: false, error: null });
    return this.#ask({ type: 'prompt', message: promptOf(messages) }, { for: 'prompt' });
  }

  steer(message: OutgoingMessage): Reaction {
    return this.#ask({ type: 'steer', message: marked(message) }, { for: 'steer', message: message.id });
  }

  /** What waits in its own queue comes back first: it would go on with that. */
  interrupt(): Reaction {
    this.#set({ isInterrupted: true });
    const clear = this.#ask({ type: 'clear_queue' }, { for: 'clear' });
    const abort = this.#ask({ type: 'abort' }, { for: 'abort' });
    return { input: [...clear.input!, ...abort.input!] };
  }

  ping(token: string): Reaction {
    return this.#ask({ type: 'get_state' }, { for: 'ping', token });
  }

  #set(changes: Partial<PiState>): void {
    this.#state = { ...this.#state, ...changes };
  }

  #ask(command: object, asked: Asked): { input: string[] } {
    const id = `c${this.#state.nextId}`;
    this.#set({ nextId: this.#state.nextId + 1, asked: { ...this.#state.asked, [id]: asked } });
    return { input: [JSON.stringify({ id, ...command })] };
  }

  #answered(asked: Asked, error: string | undefined, data: unknown): Reaction {
    switch (asked.for) {
      case 'state': {
        if (error !== undefined) return { broken: error };
        const { messageCount } = stateSchema.catch({ messageCount: 0 }).parse(data);
        return { ready: { session: this.#state.session, resumed: messageCount > 0 } };
      }
      case 'prompt':
        if (error === undefined) return {};
        return this.#ended('error', error);
      case 'steer':
        return error === undefined
          ? { taken: [{ id: asked.message, via: 'steer' }] }
          : { refused: [asked.message] };
      case 'clear': {
        const { steering, followUp } = clearedSchema.catch({ steering: [], followUp: [] }).parse(data);
        return { refused: [...steering, ...followUp].flatMap(messagesIn) };
      }
      case 'abort':
        return {};
      case 'ping':
        return { pong: asked.token };
    }
  }

  #ended(stopReason: string, error?: string): Reaction {
    if (!this.#state.isWorking) return {};
    this.#set({ isWorking: false });
    return {
      events: this.#flow.end(),
      turnEnded: { stopReason, ...(error === undefined ? {} : { error }) },
    };
  }

  #happened(event: PiEvent): Reaction {
    switch (event.type) {
      case 'message_update': {
        const { type, delta = '' } = event.assistantMessageEvent;
        if (type === 'text_delta') return { events: this.#flow.add('agent.message', delta) };
        if (type === 'thinking_delta') return { events: this.#flow.add('agent.thinking', delta) };
        return {};
      }
      case 'message_end': {
        const { role, stopReason, errorMessage } = event.message;
        if (role === 'assistant')
          this.#set({ error: stopReason === 'error' ? (errorMessage ?? 'its model failed') : null });
        return { events: this.#flow.end() };
      }
      case 'tool_execution_start':
        return { events: [...this.#flow.end(), used(event)] };
      case 'tool_execution_end': {
        const { toolCallId, toolName, isError, result } = event;
        const data = { call_id: toolCallId, tool: toolName, ok: !isError, output: texts(result.content) };
        return { events: [...this.#flow.end(), { type: 'agent.tool_result', data }] };
      }
      case 'agent_settled': {
        const { isInterrupted, error } = this.#state;
        if (isInterrupted) return this.#ended('cancelled');
        return error === null ? this.#ended('end_turn') : this.#ended('error', error);
      }
    }
  }
}

const used = ({
  toolCallId,
  toolName,
  args,
}: Extract<PiEvent, { type: 'tool_execution_start' }>): AgentEvent => ({
  type: 'agent.tool_use',
  data: {
    call_id: toolCallId,
    tool: toolName,
    kind: kinds.get(toolName) ?? 'other',
    title: toolName,
    input: shown(args, 8192),
  },
});
