import type { Config } from '@coppice/projects';

interface ModelRequest {
  readonly url: string;
  readonly headers: readonly string[];
  readonly body: unknown;
}

const defaultTokens = 1024;

/** The request that asks a model, in the form of the vendor whose model it is; the variables are set in the sandbox. */
export function modelRequest(model: string, prompt: string, config: Config): ModelRequest {
  const most = typeof config.max_tokens === 'number' ? config.max_tokens : defaultTokens;
  if (model.startsWith('claude'))
    return {
      url: '$ANTHROPIC_BASE_URL/v1/messages',
      headers: ['x-api-key: $ANTHROPIC_API_KEY', 'anthropic-version: 2023-06-01'],
      body: { model, max_tokens: most, messages: [{ role: 'user', content: prompt }] },
    };
  if (model.startsWith('gemini'))
    return {
      url: `$GOOGLE_GEMINI_BASE_URL/v1beta/models/${model}:generateContent`,
      headers: ['x-goog-api-key: $GEMINI_API_KEY'],
      body: {
        contents: [{ role: 'user', parts: [{ text: prompt }] }],
        generationConfig: { maxOutputTokens: most },
      },
    };
  return {
    url: '$OPENAI_BASE_URL/chat/completions',
    headers: ['authorization: Bearer $OPENAI_API_KEY'],
    body: { model, max_completion_tokens: most, messages: [{ role: 'user', content: prompt }] },
  };
}

/** A script that sends the request that lies beside it, with what the image has for that. */
export function askingScript({ url, headers }: ModelRequest): string {
  const options = headers.map((header) => `-H "${header}"`).join(' ');
  return `cd /workspace/.agent || exit 70
if command -v curl > /dev/null; then
  code=$(curl -sS -o answer.json -w '%{http_code}' -H 'content-type: application/json' ${options} --data-binary @request.json "${url}") || exit 69
elif command -v wget > /dev/null; then
  wget -q -O answer.json --header 'content-type: application/json' ${headers.map((header) => `--header "${header}"`).join(' ')} --post-file request.json "${url}" && code=200 || code=500
else
  echo 'the image of this agent has neither curl nor wget' >&2
  exit 127
fi
cat answer.json
case $code in 2??) ;; *) echo "the model was refused: $code" >&2; exit 1 ;; esac
`;
}

/** The text of an answer in any of the forms; undefined where there is none. What it reads is not to be trusted. */
export function answerText(body: string): string | undefined {
  let answer: unknown;
  try {
    answer = JSON.parse(body);
  } catch {
    return undefined;
  }
  const at = (value: unknown, ...path: (string | number)[]): unknown =>
    path.reduce<unknown>(
      (inner, key) =>
        typeof inner === 'object' && inner !== null
          ? (inner as Record<string | number, unknown>)[key]
          : undefined,
      value,
    );
  const blocks = at(answer, 'content');
  const found = Array.isArray(blocks)
    ? blocks
        .map((block) => at(block, 'text'))
        .filter((text) => typeof text === 'string')
        .join('')
    : (at(answer, 'choices', 0, 'message', 'content') ??
      at(answer, 'candidates', 0, 'content', 'parts', 0, 'text'));
  return typeof found === 'string' && found !== '' ? found : undefined;
}
