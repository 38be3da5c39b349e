import { arrayOf, event, numberOf, type Said, type Voice, within } from './said.ts';

const usageOf = ({ usage }: Said, output: number): Record<string, unknown> => ({
  input_tokens: usage.input,
  cache_creation_input_tokens: usage.cacheWrite5m + usage.cacheWrite1h,
  cache_read_input_tokens: usage.cacheRead,
  cache_creation: {
    ephemeral_5m_input_tokens: usage.cacheWrite5m,
    ephemeral_1h_input_tokens: usage.cacheWrite1h,
  },
  output_tokens: output,
});

const stopReason = (said: Said): string =>
  said.isCut ? 'max_tokens' : said.tools.length > 0 ? 'tool_use' : 'end_turn';

const toolId = (said: Said, index: number): string => `toolu_${said.id}_${index}`;

export const anthropicVoice: Voice = {
  read: (_path, body) => ({
    model: String(body.model),
    stream: body.stream === true,
    wantsUsage: true,
    maxOutput: numberOf(body.max_tokens),
    turns: arrayOf(body.messages).filter((message) => message.role === 'assistant').length,
    results: within(body.messages, 'content').filter((part) => part.type === 'tool_result').length,
    tools: arrayOf(body.tools).length > 0,
  }),

  whole: (said) => ({
    id: `msg_${said.id}`,
    type: 'message',
    role: 'assistant',
    model: said.model,
    content: [
      ...(said.thinking === '' ? [] : [{ type: 'thinking', thinking: said.thinking, signature: 'scripted' }]),
      ...(said.text === '' ? [] : [{ type: 'text', text: said.text }]),
      ...said.tools.map((tool, index) => ({ type: 'tool_use', id: toolId(said, index), ...tool })),
    ],
    stop_reason: stopReason(said),
    stop_sequence: null,
    usage: usageOf(said, said.usage.output),
  }),

  *stream(said) {
    const send = (type: string, rest: Record<string, unknown> = {}): string => event({ type, ...rest }, type);
    const start = this.whole(said) as Record<string, unknown>;
    yield send('message_start', {
      message: { ...start, content: [], stop_reason: null, usage: usageOf(said, 1) },
    });
    let index = 0;
    const block = function* (first: Record<string, unknown>, deltas: Iterable<Record<string, unknown>>) {
      yield send('content_block_start', { index, content_block: first });
      for (const delta of deltas) yield send('content_block_delta', { index, delta });
      yield send('content_block_stop', { index });
      index += 1;
    };
    if (said.thinking !== '')
      yield* block({ type: 'thinking', thinking: '', signature: '' }, [
        { type: 'thinking_delta', thinking: said.thinking },
        { type: 'signature_delta', signature: 'scripted' },
      ]);
    if (said.text !== '')
      yield* block(
        { type: 'text', text: '' },
        said.parts.map((text) => ({ type: 'text_delta', text })),
      );
    for (const [number, tool] of said.tools.entries())
      yield* block({ type: 'tool_use', id: toolId(said, number), name: tool.name, input: {} }, [
        { type: 'input_json_delta', partial_json: JSON.stringify(tool.input) },
      ]);
    yield send('message_delta', {
      delta: { stop_reason: stopReason(said), stop_sequence: null },
      usage: { output_tokens: said.usage.output },
    });
    yield send('message_stop');
  },
};
