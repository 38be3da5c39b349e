import { z } from 'zod';

/** Where posts go. The receiver checks the signature, so no login belongs into the URL. */
export const webhookUrlSchema = z
  .url({ protocol: /^https?$/ })
  .max(2000)
  .refine((text) => {
    // What is no URL at all was complained about already.
    if (!URL.canParse(text)) return true;
    const { username, password } = new URL(text);
    return username === '' && password === '';
  }, 'must hold no login; posts are signed');

/** What posts are signed with, as Standard Webhooks has it: `whsec_` and base64. */
export const webhookSecretSchema = z
  .string()
  .regex(/^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/, 'must be whsec_ and at least 24 bytes in base64');
