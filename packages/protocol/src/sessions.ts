import { z } from 'zod';
import { sandboxSchema } from './sandboxes.ts';

export const sessionNameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$/,
    'must be 1 to 128 letters, digits, `_`, `.`, `:`, `@` or `-`',
  );

export const sessionSchema = z.object({
  name: z.string(),
  /** It called within the last minute, or may have done so before the daemon was started. */
  live: z.boolean(),
  sandboxes: z.array(sandboxSchema.pick({ id: true, name: true, state: true })),
  /** How many sandboxes it may have. */
  limit: z.number(),
});
export type Session = z.infer<typeof sessionSchema>;

export const adoptSandboxSchema = z.strictObject({
  /** The session that is to own the sandbox. */
  session: sessionNameSchema,
  /** Also from a session that is at work. */
  force: z.boolean().default(false),
});
export const adoptedSandboxSchema = z.object({
  sandbox: sandboxSchema,
  /** Whether it changed hands. */
  adopted: z.boolean(),
  /** Whether it was taken from a session that was at work. */
  forced: z.boolean(),
});
export type AdoptedSandbox = z.infer<typeof adoptedSandboxSchema>;
