import { arrayOf, event, numberOf, type Said, type Voice } from './said.ts';

const usageOf = ({ usage }: Said): Record<string, unknown> => {
  const prompt = usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h;
  return {
    prompt_tokens: prompt,
    completion_tokens: usage.output,
    total_tokens: prompt + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cacheRead },
    completion_tokens_details: { reasoning_tokens: usage.reasoning },
  };
};

const finishReason = (said: Said): string =>
  said.isCut ? 'length' : said.tools.length > 0 ? 'tool_calls' : 'stop';

const toolCalls = (said: Said): Record<string, unknown>[] =>
  said.tools.map((tool, index) => ({
    id: `call_${said.id}_${index}`,
    type: 'function',
    function: { name: tool.name, arguments: JSON.stringify(tool.input) },
  }));

export const chatVoice: Voice = {
  read: (_path, body) => ({
    model: String(body.model),
    stream: body.stream === true,
    wantsUsage: (body.stream_options as Record<string, unknown> | undefined)?.include_usage === true,
    maxOutput: numberOf(body.max_completion_tokens) ?? numberOf(body.max_tokens),
    turns: arrayOf(body.messages).filter((message) => message.role === 'assistant').length,
    results: arrayOf(body.messages).filter((message) => message.role === 'tool').length,
    tools: arrayOf(body.tools).length > 0,
  }),

  whole: (said) => ({
    id: `chatcmpl-${said.id}`,
    object: 'chat.completion',
    created: 0,
    model: said.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: said.text,
          ...(said.tools.length > 0 ? { tool_calls: toolCalls(said) } : {}),
        },
        finish_reason: finishReason(said),
      },
    ],
    usage: usageOf(said),
  }),

  *stream(said, request) {
    const chunk = (choices: unknown[], usage: unknown = null): string =>
      event({
        id: `chatcmpl-${said.id}`,
        object: 'chat.completion.chunk',
        created: 0,
        model: said.model,
        choices,
        ...(request.wantsUsage ? { usage } : {}),
      });
    const delta = (content: Record<string, unknown>, finish: string | null = null): string =>
      chunk([{ index: 0, delta: content, finish_reason: finish }]);
    yield delta({ role: 'assistant', content: '' });
    for (const content of said.parts) yield delta({ content });
    for (const [index, call] of toolCalls(said).entries()) yield delta({ tool_calls: [{ index, ...call }] });
    yield delta({}, finishReason(said));
    if (request.wantsUsage) yield chunk([], usageOf(said));
    yield 'data: [DONE]\n\n';
  },
};
