import { z } from 'zod';
import { sandboxRefSchema } from './references.ts';

/** The parameter of every route below one sandbox. */
export const sandbox = z.strictObject({ sandbox: sandboxRefSchema });

export const list = <T extends z.ZodType>(item: T) => z.object({ items: z.array(item) });

/** A boolean in a query. */
export const flag = z.enum(['true', 'false']).transform((text) => text === 'true');
