import { z } from 'zod';

/** What signs a browser in, once. It stands behind the `#` of the page's address, which browsers send to nobody. */
export const pageLinkSchema = z.object({
  code: z.string(),
  /** Path and fragment of the link, to be put after the address of the daemon. */
  path: z.string(),
  expires_at: z.string(),
});
export type PageLink = z.infer<typeof pageLinkSchema>;

/** Who calls: the token, or the token that a page was signed in with. */
export const whoamiSchema = z.object({
  token_id: z.string(),
  scope: z.string(),
  role: z.enum(['full', 'read']),
  /** When the sign-in of a page ends; null for who calls with a token. */
  signed_in_until: z.string().nullable(),
});
export type Whoami = z.infer<typeof whoamiSchema>;

/** What a page gets for its code, next to a cookie: it proves itself with both. */
export const pageSessionSchema = z.object({ key: z.string(), expires_at: z.string() });
export type PageSession = z.infer<typeof pageSessionSchema>;

export const pageSessionPath = '/v1/page/session';
/** Of the Authorization header with which a page signs in. */
export const pageCodeScheme = 'Coppice-Code';
