import { arrayOf, event, numberOf, type Said, type Voice } from './said.ts';

const usageOf = ({ usage }: Said): Record<string, unknown> => {
  const input = usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: usage.cacheRead },
    output_tokens: usage.output,
    output_tokens_details: { reasoning_tokens: usage.reasoning },
    total_tokens: input + usage.output,
  };
};

const message = (said: Said, status: string): Record<string, unknown> => ({
  id: `msg_${said.id}`,
  type: 'message',
  role: 'assistant',
  status,
  content: status === 'completed' ? [{ type: 'output_text', text: said.text, annotations: [] }] : [],
});

const calls = (said: Said, status: string): Record<string, unknown>[] =>
  said.tools.map((tool, index) => ({
    id: `fc_${said.id}_${index}`,
    type: 'function_call',
    call_id: `call_${said.id}_${index}`,
    name: tool.name,
    arguments: status === 'completed' ? JSON.stringify(tool.input) : '',
    status,
  }));

const body = (said: Said, isDone: boolean): Record<string, unknown> => ({
  id: `resp_${said.id}`,
  object: 'response',
  created_at: 0,
  status: isDone ? (said.isCut ? 'incomplete' : 'completed') : 'in_progress',
  error: null,
  incomplete_details: isDone && said.isCut ? { reason: 'max_output_tokens' } : null,
  model: said.model,
  output: isDone
    ? [...(said.text === '' ? [] : [message(said, 'completed')]), ...calls(said, 'completed')]
    : [],
  parallel_tool_calls: true,
  tool_choice: 'auto',
  tools: [],
  usage: isDone ? usageOf(said) : null,
});

/** Answers of the model in the input: text, and each call of a tool. */
const answersIn = (input: unknown): number => {
  let turns = 0;
  let wasAnswer = false;
  for (const item of arrayOf(input)) {
    const isAnswer = item.type === 'function_call' || item.type === 'reasoning' || item.role === 'assistant';
    if (isAnswer && !wasAnswer) turns += 1;
    wasAnswer = isAnswer;
  }
  return turns;
};

export const responsesVoice: Voice = {
  read: (_path, request) => ({
    model: String(request.model),
    stream: request.stream === true,
    wantsUsage: true,
    maxOutput: numberOf(request.max_output_tokens),
    turns: answersIn(request.input),
    results: arrayOf(request.input).filter((item) => /_call_output$/.test(String(item.type))).length,
    tools: arrayOf(request.tools).length > 0,
  }),

  whole: (said) => body(said, true),

  *stream(said) {
    let sequence = 0;
    const send = (type: string, rest: Record<string, unknown>): string => {
      sequence += 1;
      return event({ type, sequence_number: sequence - 1, ...rest }, type);
    };
    yield send('response.created', { response: body(said, false) });
    let index = 0;
    if (said.text !== '') {
      const where = { output_index: index, item_id: `msg_${said.id}`, content_index: 0 };
      const part = { type: 'output_text', text: '', annotations: [] };
      yield send('response.output_item.added', { output_index: index, item: message(said, 'in_progress') });
      yield send('response.content_part.added', { ...where, part });
      for (const delta of said.parts)
        yield send('response.output_text.delta', { ...where, delta, logprobs: [] });
      yield send('response.output_text.done', { ...where, text: said.text, logprobs: [] });
      yield send('response.content_part.done', { ...where, part: { ...part, text: said.text } });
      yield send('response.output_item.done', { output_index: index, item: message(said, 'completed') });
      index += 1;
    }
    const before = calls(said, 'in_progress');
    for (const [number, item] of calls(said, 'completed').entries()) {
      const where = { output_index: index, item_id: item.id };
      yield send('response.output_item.added', { output_index: index, item: before[number] });
      yield send('response.function_call_arguments.delta', { ...where, delta: item.arguments });
      yield send('response.function_call_arguments.done', { ...where, arguments: item.arguments });
      yield send('response.output_item.done', { output_index: index, item });
      index += 1;
    }
    yield send(said.isCut ? 'response.incomplete' : 'response.completed', { response: body(said, true) });
  },
};
