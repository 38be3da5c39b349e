import { arrayOf, event, numberOf, type Said, type Voice, within } from './said.ts';

const usageOf = ({ usage }: Said): Record<string, unknown> => {
  const prompt = usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h;
  return {
    promptTokenCount: prompt,
    cachedContentTokenCount: usage.cacheRead,
    candidatesTokenCount: usage.output - usage.reasoning,
    thoughtsTokenCount: usage.reasoning,
    totalTokenCount: prompt + usage.output,
  };
};

const chunk = (said: Said, parts: unknown[], isLast: boolean): Record<string, unknown> => ({
  candidates: [
    {
      content: { role: 'model', parts },
      index: 0,
      ...(isLast ? { finishReason: said.isCut ? 'MAX_TOKENS' : 'STOP' } : {}),
    },
  ],
  usageMetadata: usageOf(said),
  modelVersion: said.model,
  responseId: said.id,
});

const calls = (said: Said): unknown[] =>
  said.tools.map((tool) => ({ functionCall: { name: tool.name, args: tool.input } }));

export const geminiVoice: Voice = {
  read(path, body) {
    const [, model, method] = /\/models\/([^:]+):(\w+)/.exec(path) ?? [];
    const config = body.generationConfig as Record<string, unknown> | undefined;
    return {
      model: decodeURIComponent(model ?? ''),
      stream: method === 'streamGenerateContent',
      wantsUsage: true,
      maxOutput: numberOf(config?.maxOutputTokens),
      turns: arrayOf(body.contents).filter((content) => content.role === 'model').length,
      results: within(body.contents, 'parts').filter((part) => part.functionResponse !== undefined).length,
      tools: arrayOf(body.tools).length > 0,
    };
  },

  whole: (said) => chunk(said, [...(said.text === '' ? [] : [{ text: said.text }]), ...calls(said)], true),

  *stream(said) {
    for (const text of said.parts) yield event(chunk(said, [{ text }], false));
    yield event(chunk(said, calls(said), true));
  },
};
