import {
  frameSchema,
  initializedSchema,
  permissionSchema,
  promptedSchema,
  type SessionUpdate,
  sessionSchema,
  steeredSchema,
  updateSchema,
} from './acp-schema.ts';
import { AcpTools, type ToolState } from './acp-tools.ts';
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
import { parseLine, shown } from './json-line.ts';
import { launchOf } from './launch-of.ts';
import { marked, promptOf } from './marked-message.ts';
import type { AcpProfile } from './profile.ts';
import { type FlowState, TextFlow } from './text-flow.ts';

/** A request of ours that has no answer yet. */
type Asked =
  | { readonly for: 'initialize' | 'new' | 'load' | 'mode' }
  | { readonly for: 'prompt' }
  | { readonly for: 'steer'; readonly message: string }
  | { readonly for: 'ping'; readonly token: string };

interface AcpState {
  readonly nextId: number;
  readonly asked: Readonly<Record<string, Asked>>;
  readonly session: string | null;
  readonly cwd: string;
  readonly isReady: boolean;
  readonly wasLoaded: boolean;
  readonly version: string | null;
  /** Of the turn, as goose wants it back. */
  readonly turnId: string | null;
  readonly flow: FlowState | null;
  readonly tools: ToolState;
}

const nobody: AcpState = {
  nextId: 1,
  asked: {},
  session: null,
  cwd: '/',
  isReady: false,
  wasLoaded: false,
  version: null,
  turnId: null,
  flow: null,
  tools: {},
};

const methodNotFound = -32601;
const longestError = 4096;

/**
 * Any agent that speaks the Agent Client Protocol, version 1, over its standard input and output; what is particular to one is in its
 * profile. It holds no connection and no promise: between two lines all it knows is `state`, so another daemon can go on.
 */
export class AcpAdapter implements AgentAdapter {
  readonly fetchesMessages = false;
  readonly framing = 'lines';

  readonly #profile: AcpProfile;
  #state: AcpState;
  #flow: TextFlow;
  #tools: AcpTools;

  constructor(profile: AcpProfile, state: unknown) {
    this.#profile = profile;
    this.#state = { ...nobody, ...(state as AcpState | null | undefined) };
    this.#flow = new TextFlow(this.#state.flow);
    this.#tools = new AcpTools(this.#state.tools);
  }

  get steering(): Steering {
    return this.#profile.steer === undefined ? 'none' : 'native';
  }

  get keepsSteered(): boolean {
    return this.#profile.steer === 'prompt';
  }

  get canResume(): boolean {
    return this.#profile.resume !== undefined;
  }

  get state(): AcpState {
    return { ...this.#state, flow: this.#flow.state, tools: this.#tools.state };
  }

  launch(task: AgentTask): Launch {
    return launchOf(this.#profile, task);
  }

  /** The process is new, and so is everything but the session. */
  open({ cwd }: AgentTask): Reaction {
    const { session, version } = this.#state;
    this.#state = { ...nobody, session, version, cwd };
    this.#flow = new TextFlow();
    this.#tools = new AcpTools();
    const clientInfo = { name: 'coppice', title: 'Coppice', version: '1' };
    const clientCapabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
    return this.#ask(
      'initialize',
      { protocolVersion: 1, clientCapabilities, clientInfo },
      { for: 'initialize' },
    );
  }

  line(stream: 'stdout' | 'stderr', line: string): Reaction {
    const frame = stream === 'stdout' ? frameSchema.safeParse(parseLine(line)) : undefined;
    if (frame?.success !== true) return { events: [{ type: 'agent.output', data: { stream, text: line } }] };
    const { id, method, params, result, error } = frame.data;
    if (method !== undefined)
      return id === undefined ? this.#notified(method, params) : this.#requested(id, method, params);
    // An answer to nothing is no use to anybody.
    if (typeof id !== 'number' || !Object.hasOwn(this.#state.asked, id)) return {};
    const { [id]: asked, ...others } = this.#state.asked;
    this.#set({ asked: others });
    return this.#answered(asked!, result, error && said(error));
  }

  prompt(messages: readonly Outgoing[]): Reaction {
    const prompt = [{ type: 'text', text: promptOf(messages) }];
    return this.#ask('session/prompt', { sessionId: this.#state.session, prompt }, { for: 'prompt' });
  }

  steer(message: OutgoingMessage): Reaction | undefined {
    const { steer } = this.#profile;
    const { session, turnId } = this.#state;
    if (steer === undefined || session === null || (steer === 'goose' && turnId === null)) return undefined;
    // A second prompt goes into the turn; nothing is said about it before the turn ends.
    if (steer === 'prompt') {
      return { ...this.prompt([message]), taken: [{ id: message.id, via: 'steer' }] };
    }
    const prompt = [{ type: 'text', text: marked(message) }];
    const [method, params] =
      steer === 'goose'
        ? ['_goose/unstable/session/steer', { sessionId: session, expectedRunId: turnId, prompt }]
        : [
            '_session/steering',
            { sessionId: session, prompt, _meta: { steering: { idleBehavior: 'promptRequired' } } },
          ];
    return this.#ask(method as string, params, { for: 'steer', message: message.id });
  }

  interrupt(): Reaction {
    const { session } = this.#state;
    if (session === null) return {};
    return { input: [notification('session/cancel', { sessionId: session })] };
  }

  ping(token: string): Reaction {
    // No agent knows it, and each says so at once while its loop runs.
    return this.#ask('_coppice/ping', {}, { for: 'ping', token });
  }

  #set(changes: Partial<AcpState>): void {
    this.#state = { ...this.#state, ...changes };
  }

  #ask(method: string, params: unknown, asked: Asked): Reaction {
    const id = this.#state.nextId;
    this.#set({ nextId: id + 1, asked: { ...this.#state.asked, [id]: asked } });
    return { input: [JSON.stringify({ jsonrpc: '2.0', id, method, params })] };
  }

  #answered(asked: Asked, result: unknown, error: string | undefined): Reaction {
    switch (asked.for) {
      case 'initialize':
        return this.#initialized(result, error);
      case 'load':
        // It does not know the session any more: it gets a new one, and is told the task again.
        if (error !== undefined) return this.#lost(error);
        this.#set({ wasLoaded: true });
        return this.#opened();
      case 'new': {
        const made = sessionSchema.safeParse(result);
        if (!made.success) return { broken: error ?? 'the agent made no session' };
        this.#set({ session: made.data.sessionId });
        return this.#opened();
      }
      case 'mode':
        if (error !== undefined) return { broken: `the agent refused its mode: ${error}` };
        return this.#ready();
      case 'prompt':
        return this.#prompted(result, error);
      case 'steer':
        return this.#steered(asked.message, result, error);
      case 'ping':
        return { pong: asked.token };
    }
  }

  #initialized(result: unknown, error: string | undefined): Reaction {
    const initialized = initializedSchema.safeParse(result);
    if (!initialized.success) return { broken: error ?? 'the agent does not speak the protocol' };
    const { protocolVersion, agentInfo } = initialized.data;
    if (protocolVersion !== 1)
      return { broken: `the agent speaks version ${protocolVersion} of the protocol, and not 1` };
    this.#set({ version: agentInfo?.version ?? null });
    const { session, cwd } = this.#state;
    const { resume } = this.#profile;
    if (session === null || resume === undefined) return this.#newSession();
    return this.#ask(`session/${resume}`, { sessionId: session, cwd, mcpServers: [] }, { for: 'load' });
  }

  #newSession(): Reaction {
    this.#set({ session: null });
    return this.#ask('session/new', { cwd: this.#state.cwd, mcpServers: [] }, { for: 'new' });
  }

  #lost(error: string): Reaction {
    const message = `its session could not be continued: ${error}`;
    return {
      ...this.#newSession(),
      events: [{ type: 'agent.error', data: { message, fatal: false } }],
    };
  }

  /** Modes are not kept with a session. */
  #opened(): Reaction {
    const { mode } = this.#profile;
    if (mode === undefined) return this.#ready();
    return this.#ask('session/set_mode', { sessionId: this.#state.session, modeId: mode }, { for: 'mode' });
  }

  #ready(): Reaction {
    const { session, wasLoaded } = this.#state;
    this.#set({ isReady: true });
    return { ready: { session, resumed: wasLoaded } };
  }

  #prompted(result: unknown, error: string | undefined): Reaction {
    // One that went into the turn ends with it.
    if (Object.values(this.#state.asked).some((asked) => asked.for === 'prompt')) return {};
    const events = this.#flow.end();
    this.#tools.end();
    this.#set({ turnId: null });
    if (error !== undefined) return { events, turnEnded: { stopReason: 'error', error } };
    const prompted = promptedSchema.safeParse(result);
    return { events, turnEnded: { stopReason: prompted.success ? prompted.data.stopReason : 'end_turn' } };
  }

  #steered(message: string, result: unknown, error: string | undefined): Reaction {
    const steered = steeredSchema.safeParse(result);
    const outcome = steered.success ? (steered.data?.outcome ?? 'injected') : 'unclear';
    return error === undefined && outcome === 'injected'
      ? { taken: [{ id: message, via: 'steer' }] }
      : { refused: [message] };
  }

  #requested(id: string | number, method: string, params: unknown): Reaction {
    if (method !== 'session/request_permission') {
      const error = { code: methodNotFound, message: 'there is no such method' };
      return { input: [JSON.stringify({ jsonrpc: '2.0', id, error })] };
    }
    const { options } = permissionSchema.catch({ options: [] }).parse(params);
    const wanted = this.#profile.permissions === 'deny' ? 'reject' : 'allow';
    const option =
      options.find(({ kind }) => kind === `${wanted}_once`) ??
      options.find(({ kind }) => kind === `${wanted}_always`);
    const outcome =
      option === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId: option.optionId };
    return { input: [JSON.stringify({ jsonrpc: '2.0', id, result: { outcome } })] };
  }

  #notified(method: string, params: unknown): Reaction {
    if (method !== 'session/update') return {};
    const parsed = updateSchema.safeParse(params);
    if (!parsed.success || parsed.data.sessionId !== this.#state.session) return {};
    const { update } = parsed.data;
    if (update.sessionUpdate === 'session_info_update')
      this.#set({ turnId: update._meta.goose.activeRunId ?? null });
    // While a session is loaded, what was said in it before is said again.
    if (!this.#state.isReady) return {};
    return { events: this.#happened(update) };
  }

  #happened(update: SessionUpdate): AgentEvent[] {
    switch (update.sessionUpdate) {
      case 'agent_message_chunk':
        return this.#flow.add('agent.message', update.content.text);
      case 'agent_thought_chunk':
        return this.#flow.add('agent.thinking', update.content.text);
      case 'tool_call':
      case 'tool_call_update': {
        const events = this.#tools.update(update);
        return events.length === 0 ? [] : [...this.#flow.end(), ...events];
      }
      case 'plan': {
        const entries = update.entries.map(({ content, status }) => ({ text: content, status }));
        return [{ type: 'agent.plan', data: { entries } }];
      }
      case 'usage_update':
        return [{ type: 'agent.context', data: { used: update.used, size: update.size } }];
      case 'session_info_update':
        return [];
    }
  }
}

const notification = (method: string, params: object): string =>
  JSON.stringify({ jsonrpc: '2.0', method, params });

const said = ({ message, data }: { message: string; data?: unknown }): string => {
  const more = data === undefined || data === null ? '' : ` (${shown(data, 1000)})`;
  return `${message}${more}`.slice(0, longestError);
};
