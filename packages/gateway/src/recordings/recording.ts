import { z } from 'zod';

/** One answer of a model on disk. It has no header of the request or the answer but the type of its content. */
export const recordingSchema = z.strictObject({
  format: z.literal(1),
  dialect: z.enum(['anthropic', 'openai-responses', 'openai-chat', 'gemini']),
  model: z.string(),
  /** Of the request. */
  digest: z.string().regex(/^[0-9a-f]{64}$/),
  status: z.int().min(200).max(299),
  contentType: z.string(),
  /** The bytes as they came, and when: milliseconds after the request. */
  chunks: z.array(z.strictObject({ afterMs: z.number().min(0), base64: z.base64() })),
});
export type Recording = z.output<typeof recordingSchema>;
