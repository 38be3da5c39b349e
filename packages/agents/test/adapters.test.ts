import { type AdapterBench, describeAdapter, type PlayedAgent } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { acpProfiles } from '../src/acp-profiles.ts';
import { createAdapter, profiles } from '../src/index.ts';

const frame = (value: object): string => JSON.stringify({ jsonrpc: '2.0', ...value });

/** Speaks the Agent Client Protocol as the agents do, with the extensions for steering that some have. */
class AcpPlayer implements PlayedAgent {
  #prompts: number[] = [];
  #calls = 0;

  hear(line: string): string[] {
    const { id, method } = JSON.parse(line) as { id?: number; method?: string };
    const answer = (result: object) => [frame({ id, result })];
    switch (method) {
      case 'initialize':
        return answer({ protocolVersion: 1, agentInfo: { name: 'player', version: '1.0' } });
      case 'session/new':
        return answer({ sessionId: 's1' });
      case 'session/load':
      case 'session/resume':
        // What was said in it before is said again.
        return [this.#update({ sessionUpdate: 'agent_message_chunk', content: text('old') }), ...answer({})];
      case 'session/set_mode':
        return answer({});
      case 'session/prompt':
        this.#prompts.push(id!);
        return [
          this.#update({
            sessionUpdate: 'session_info_update',
            _meta: { goose: { activeRunId: 'r1' } },
          }),
        ];
      case 'session/cancel':
        return this.#end('cancelled');
      case '_session/steering':
        return answer({ outcome: 'injected' });
      case '_goose/unstable/session/steer':
        return answer({ runId: 'r1' });
      default:
        return id === undefined || method === undefined
          ? []
          : [frame({ id, error: { code: -32601, message: 'no such method' } })];
    }
  }

  say(...pieces: string[]): string[] {
    return pieces.map((piece) =>
      this.#update({ sessionUpdate: 'agent_message_chunk', content: text(piece) }),
    );
  }

  useTool(tool: string, output: string): string[] {
    this.#calls += 1;
    const toolCallId = `call-${this.#calls}`;
    return [
      this.#update({ sessionUpdate: 'tool_call', toolCallId, title: tool, status: 'pending' }),
      this.#update({ sessionUpdate: 'tool_call_update', toolCallId, rawInput: { command: 'x' } }),
      this.#update({
        sessionUpdate: 'tool_call_update',
        toolCallId,
        status: 'completed',
        content: [{ type: 'content', content: text(output) }],
      }),
    ];
  }

  endTurn(): string[] {
    return this.#end('end_turn');
  }

  #end(stopReason: string): string[] {
    const ended = this.#prompts.map((id) => frame({ id, result: { stopReason } }));
    this.#prompts = [];
    return ended;
  }

  #update(update: object): string {
    return frame({ method: 'session/update', params: { sessionId: 's1', update } });
  }
}

const text = (value: string) => ({ type: 'text', text: value });

/** Speaks as pi does in its mode rpc. */
class PiPlayer implements PlayedAgent {
  #messages = 0;
  #calls = 0;

  hear(line: string): string[] {
    const { id, type } = JSON.parse(line) as { id: string; type: string };
    const answer = (data: object) =>
      JSON.stringify({ id, type: 'response', command: type, success: true, data });
    if (type === 'get_state') return [answer({ messageCount: this.#messages })];
    if (type === 'prompt') this.#messages += 1;
    if (type === 'clear_queue') return [answer({ steering: [], followUp: [] })];
    return type === 'abort' ? [...this.endTurn(), answer({})] : [answer({})];
  }

  say(...pieces: string[]): string[] {
    const said = pieces.map((delta) =>
      JSON.stringify({ type: 'message_update', assistantMessageEvent: { type: 'text_delta', delta } }),
    );
    const message = { role: 'assistant', content: [], stopReason: 'stop' };
    return [...said, JSON.stringify({ type: 'message_end', message })];
  }

  useTool(toolName: string, output: string): string[] {
    this.#calls += 1;
    const call = { toolCallId: `call-${this.#calls}`, toolName };
    const result = { content: [{ type: 'text', text: output }] };
    return [
      JSON.stringify({ type: 'tool_execution_start', ...call, args: {} }),
      JSON.stringify({ type: 'tool_execution_end', ...call, isError: false, result }),
    ];
  }

  endTurn(): string[] {
    return [JSON.stringify({ type: 'agent_settled' })];
  }
}

const benchOf = (name: string, agent: () => PlayedAgent): AdapterBench => ({
  adapter: (state) => createAdapter(profiles[name]!, state),
  agent,
});

for (const { name } of acpProfiles)
  describeAdapter(
    name,
    benchOf(name, () => new AcpPlayer()),
  );
describeAdapter(
  'pi',
  benchOf('pi', () => new PiPlayer()),
);

test('what a command wrote in pieces is the output of its tool, the end of it where it is long', () => {
  const adapter = createAdapter(profiles.codex!, undefined);
  const agent = new AcpPlayer();
  const open = adapter.open({ runId: 'run', task: 'work', cwd: '/', model: null });
  const tell = (input: readonly string[] = []): void => {
    for (const line of input.flatMap((each) => agent.hear(each))) tell(adapter.line('stdout', line).input);
  };
  tell(open.input);
  const update = (more: object) =>
    adapter.line(
      'stdout',
      JSON.stringify({
        jsonrpc: '2.0',
        method: 'session/update',
        params: {
          sessionId: 's1',
          update: { sessionUpdate: 'tool_call_update', toolCallId: 'c', title: 'make', ...more },
        },
      }),
    );
  update({ sessionUpdate: 'tool_call', status: 'in_progress', rawInput: { command: 'make' } });
  update({ _meta: { terminal_output_delta: { data: 'one\n', terminal_id: 'c' } } });
  update({ _meta: { terminal_output_delta: { data: 'x'.repeat(100_000), terminal_id: 'c' } } });
  update({ _meta: { terminal_output_delta: { data: 7 } } });
  update({ _meta: { terminal_output_delta: { data: 'two\n', terminal_id: 'c' } } });
  const ended = update({ status: 'completed' }).events?.find((event) => event.type === 'agent.tool_result');
  const output = expect.stringMatching(/^x{16380}two\n$/);
  expect(ended?.data).toMatchObject({ tool: 'make', ok: true, output });
  expect(JSON.stringify(adapter.state).length).toBeLessThan(10_000);
});
