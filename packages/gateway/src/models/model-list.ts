import type { DialectName } from './dialect.ts';

/** The lists of models that clients ask for, in the form of each vendor. */

const openaiModel = (id: string): Record<string, unknown> => ({
  id,
  object: 'model',
  created: 0,
  owned_by: 'coppice',
});

const anthropicModel = (id: string): Record<string, unknown> => ({
  type: 'model',
  id,
  display_name: id,
  created_at: '1970-01-01T00:00:00Z',
});

const geminiModel = (id: string): Record<string, unknown> => ({
  name: `models/${id}`,
  displayName: id,
  supportedGenerationMethods: ['generateContent', 'countTokens'],
});

/** What a client asked for: a list or one model. Undefined where it asked for something else. */
export function modelListAnswer(
  path: string,
  vendor: DialectName,
  names: () => readonly string[],
):
  | { readonly status: 200; readonly body: unknown }
  | { readonly status: 404; readonly model: string }
  | undefined {
  const match = /^\/(?:v1|v1beta)\/models(?:\/([^:]+))?$/.exec(path);
  if (match === null) return undefined;
  const known = names();
  const form = vendor === 'gemini' ? geminiModel : vendor === 'anthropic' ? anthropicModel : openaiModel;
  if (match[1] !== undefined) {
    const model = safeDecode(match[1]);
    return known.includes(model) ? { status: 200, body: form(model) } : { status: 404, model };
  }
  const data = known.map(form);
  if (form === geminiModel) return { status: 200, body: { models: data } };
  if (form === openaiModel) return { status: 200, body: { object: 'list', data } };
  return {
    status: 200,
    body: { data, has_more: false, first_id: known[0] ?? null, last_id: known.at(-1) ?? null },
  };
}

const safeDecode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
