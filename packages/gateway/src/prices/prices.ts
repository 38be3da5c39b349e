import { createHash } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import { calcPrice } from '@pydantic/genai-prices';
import { z } from 'zod';
import { inputOf, type Usage } from '../models/usage.ts';

/** The version of the package whose prices these are; package.json pins the same one. */
const pricePackage = 'genai-prices@0.1.8';

const price = z.number().nonnegative().max(1e6);

const modelPrice = z.strictObject({
  /** US dollars for a million tokens. */
  input: price,
  output: price,
  /** As `input` where it is left out. */
  cache_read: price.optional(),
  cache_write_5m: price.optional(),
  cache_write_1h: price.optional(),
  /** The first day on which it holds, UTC. */
  from: z.iso.date().optional(),
});

/** The operator's own prices. They come before those of the package. */
export const priceFileSchema = z.strictObject({
  /** By name of the model; `*` at the end stands for any rest. The longest match counts. */
  models: z.record(z.string().min(1), z.union([modelPrice, z.array(modelPrice).min(1)])),
});
export type PriceFile = z.infer<typeof priceFileSchema>;

export interface Price {
  /** Millionths of a US dollar, rounded, and never 0 where something was charged. */
  readonly micros: number;
  readonly version: string;
}

export interface PriceQuestion {
  readonly model: string;
  /** The vendor as the package of prices calls it; absent where the upstream is nobody's known one. */
  readonly vendor: string | undefined;
  readonly usage: Usage;
  readonly atMs: number;
}

export class Prices {
  readonly #file: PriceFile;
  readonly #fileVersion: string;
  readonly unknown: 'refuse' | 'count';

  /** `unknown` says what happens to models without a price: refused, or their tokens counted without a cost. */
  constructor(options: { readonly unknown: 'refuse' | 'count'; readonly file?: unknown }) {
    this.unknown = options.unknown;
    const parsed = priceFileSchema.safeParse(options.file ?? { models: {} });
    if (!parsed.success)
      throw new CoppiceError(
        'invalid_argument',
        `the file of prices is wrong: ${z.prettifyError(parsed.error)}`,
      );
    this.#file = parsed.data;
    const digest = createHash('sha256').update(JSON.stringify(parsed.data)).digest('hex');
    this.#fileVersion = `file@${digest.slice(0, 12)}`;
  }

  /** Undefined where nobody knows the price of this model. */
  price(question: PriceQuestion): Price | undefined {
    const own = this.#ownPrice(question);
    if (own !== undefined) return own;
    if (question.vendor === undefined) return undefined;
    const { usage } = question;
    const result = calcPrice(
      {
        input_tokens: inputOf(usage),
        cache_read_tokens: usage.cacheRead,
        cache_write_tokens: usage.cacheWrite5m + usage.cacheWrite1h,
        cache_write_1h_tokens: usage.cacheWrite1h,
        output_tokens: usage.output,
      },
      question.model,
      { providerId: question.vendor, timestamp: new Date(question.atMs) },
    );
    return result === null
      ? undefined
      : { micros: wholeMicros(result.total_price * 1e6), version: pricePackage };
  }

  #ownPrice(question: PriceQuestion): Price | undefined {
    const entry = this.#ownEntry(question.model);
    if (entry === undefined) return undefined;
    const day = new Date(question.atMs).toISOString().slice(0, 10);
    const inForce = (Array.isArray(entry) ? entry : [entry])
      .filter((one) => one.from === undefined || one.from <= day)
      .toSorted((one, other) => (other.from ?? '').localeCompare(one.from ?? ''))[0];
    if (inForce === undefined) return undefined;
    const { usage } = question;
    // Dollars for a million tokens are millionths of a dollar for one.
    const micros =
      usage.input * inForce.input +
      usage.cacheRead * (inForce.cache_read ?? inForce.input) +
      usage.cacheWrite5m * (inForce.cache_write_5m ?? inForce.input) +
      usage.cacheWrite1h * (inForce.cache_write_1h ?? inForce.cache_write_5m ?? inForce.input) +
      usage.output * inForce.output;
    return { micros: wholeMicros(micros), version: this.#fileVersion };
  }

  #ownEntry(model: string): PriceFile['models'][string] | undefined {
    if (Object.hasOwn(this.#file.models, model)) return this.#file.models[model];
    const longest = Object.keys(this.#file.models)
      .filter((name) => name.endsWith('*') && model.startsWith(name.slice(0, -1)))
      .toSorted((one, other) => other.length - one.length)[0];
    return longest === undefined ? undefined : this.#file.models[longest];
  }
}

const wholeMicros = (micros: number): number => (micros > 0 ? Math.max(1, Math.round(micros)) : 0);
