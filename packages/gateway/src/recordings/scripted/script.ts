import { z } from 'zod';

const count = z.int().min(0).max(1e9);

const stepSchema = z.strictObject({
  thinking: z.string().optional(),
  text: z.string().optional(),
  /** Tools that the model calls after its text. */
  tools: z
    .array(z.strictObject({ name: z.string().min(1), input: z.record(z.string(), z.unknown()) }))
    .default([]),
  /** Tokens that it reports. What is left out is guessed from lengths; `output` is cut at what the request allows. */
  usage: z
    .strictObject({
      input: count.optional(),
      cacheRead: count.optional(),
      cacheWrite5m: count.optional(),
      cacheWrite1h: count.optional(),
      output: count.optional(),
      reasoning: count.optional(),
    })
    .default({}),
  /** Before the answer begins. */
  delayMs: z.number().min(0).max(600_000).default(0),
  /** Between two parts of a stream. */
  partDelayMs: z.number().min(0).max(600_000).default(0),
  /** Into how many parts a stream cuts the text. */
  parts: z.int().min(1).max(100_000).default(3),
  /** An error in the form of the vendor, as often as `times` says; the rest of the step is for later tries. */
  error: z
    .strictObject({
      status: z.int().min(400).max(599),
      message: z.string().default('scripted error'),
      retryAfterS: z.number().min(0).optional(),
      times: z.int().min(1).default(1_000_000),
    })
    .optional(),
});

/** What a scripted upstream says, step by step. */
export const scriptSchema = z.strictObject({
  /**
   * `turn` takes the step by the number of answers that the conversation already has, `tool-results` by the number of results of
   * tools: so conversations do not disturb each other. `order` takes one step after the other, whoever asks.
   */
  by: z.enum(['turn', 'tool-results', 'order']).default('turn'),
  /** The answer to requests that offer no tools, as agents make them for titles and suggestions; the steps are then for the others. */
  aside: stepSchema.optional(),
  /** After the last step it is said again. */
  steps: z.array(stepSchema).min(1),
});
export type Script = z.output<typeof scriptSchema>;
export type ScriptStep = Script['steps'][number];
