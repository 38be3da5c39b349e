import { endWithin, estimateTokens, startWithin } from '../../text/estimate-tokens.ts';

/** What one answer may cost the context of a model; some of it is for the fields around the text. */
const answerTokens = 8_000;
export const textTokens = 7_000;
/** Of bytes that an answer has as base64. */
export const bytesPerToken = 1.2;

/** The start and the end of a text that is too long, with what the note says between them. */
export const headAndTail = (
  text: string,
  tokens: number,
  note: (leftOutBytes: number, headBytes: number) => string,
): { text: string; cut: boolean } => {
  if (startWithin(text, tokens).length === text.length) return { text, cut: false };
  const head = startWithin(text, tokens / 2);
  const tail = endWithin(text.slice(head.length), tokens / 2);
  const headBytes = Buffer.byteLength(head);
  const leftOut = Buffer.byteLength(text) - headBytes - Buffer.byteLength(tail);
  return { text: `${head}\n${note(leftOut, headBytes)}\n${tail}`, cut: true };
};

/** How the two outputs of a command share an answer: what one does not need is the other's. */
export const shareTokens = (stdout: string, stderr: string, tokens: number): [number, number] => {
  const half = tokens / 2;
  const needed = (text: string): number => estimateTokens(startWithin(text, tokens));
  const [out, err] = [needed(stdout), needed(stderr)];
  if (out + err <= tokens) return [tokens, tokens];
  if (out <= half) return [tokens, tokens - out];
  return err <= half ? [tokens - err, tokens] : [half, half];
};

type Holder = Record<string, unknown> | unknown[];
interface Part {
  readonly holder: Holder;
  readonly key: string;
  readonly path: string;
  readonly value: string | unknown[];
  readonly size: number;
}

const shortestCut = 200;

/** Everything in an answer that could be shorter, and how much of the answer it is. */
const partsOf = (holder: Holder, path: string, found: Part[]): Part[] => {
  for (const [key, value] of Object.entries(holder)) {
    const at = Array.isArray(holder) ? `${path}[${key}]` : path === '' ? key : `${path}.${key}`;
    if (typeof value === 'string') {
      if (value.length > shortestCut) found.push({ holder, key, path: at, value, size: value.length });
    } else if (typeof value === 'object' && value !== null) {
      if (Array.isArray(value) && value.length > 1)
        found.push({ holder, key, path: at, value, size: JSON.stringify(value).length });
      partsOf(value as Holder, at, found);
    }
  }
  return found;
};

/** A string that is most of a list goes before the list. */
const largest = (parts: readonly Part[]): Part | undefined => {
  const [first, ...others] = parts.toSorted((a, b) => b.size - a.size);
  const text = others.find((part) => typeof part.value === 'string' && part.size * 2 > (first?.size ?? 0));
  return typeof first?.value === 'string' ? first : (text ?? first);
};

/** As JSON, in which a line end is no more than it is in text. */
const costOf = (value: unknown): number =>
  estimateTokens(JSON.stringify(value).replaceAll('\\n', '\n').replaceAll('\\"', '"'));

/**
 * An answer that fits: the longest lists end early and the longest texts lose their middle. `shortened` says where, so that
 * nobody takes a part for the whole.
 */
export const fitAnswer = (output: Record<string, unknown>): Record<string, unknown> => {
  if (costOf(output) <= answerTokens) return output;
  const answer = structuredClone(output);
  const notes = new Map<string, string>();
  const lengths = new Map<string, number>();
  for (let tries = 0; tries < 50; tries += 1) {
    const tokens = costOf(answer);
    if (tokens <= answerTokens - 200) break;
    const part = largest(partsOf(answer, '', []));
    if (part === undefined) break;
    const share = Math.min(0.9, (answerTokens - 300) / tokens);
    const whole = lengths.get(part.path) ?? part.value.length;
    lengths.set(part.path, whole);
    let shorter: unknown;
    if (typeof part.value === 'string') {
      const kept = Math.max(shortestCut / 2, estimateTokens(part.value) * share);
      shorter = headAndTail(part.value, kept, () => '[…]').text;
      if ((shorter as string).length >= part.value.length) break;
      notes.set(part.path, `${part.path}: the middle is left out, there are ${whole} characters`);
    } else {
      const kept = Math.max(1, Math.floor(part.value.length * share));
      shorter = part.value.slice(0, kept);
      notes.set(part.path, `${part.path}: the first ${kept} of ${whole}`);
    }
    (part.holder as Record<string, unknown>)[part.key] = shorter;
  }
  const said = [...notes.values()].slice(0, 10).join('; ');
  return { ...answer, shortened: `${said}. Ask for a smaller part to see the rest.` };
};
