import * as page from './page.ts';
import type { Route } from './route.ts';

/** What signs a browser in to the page. */
export const pageRoutes = {
  whoami: {
    method: 'GET',
    path: '/v1/whoami',
    tag: 'tokens',
    summary: 'Show which token calls and what it may reach',
    scope: 'token',
    answer: 'json',
    result: page.whoamiSchema,
  },
  createPageLink: {
    method: 'POST',
    path: '/v1/page/links',
    tag: 'tokens',
    summary: 'Create a link that signs a browser in once, with the scope of this token',
    scope: 'token',
    answer: 'json',
    result: page.pageLinkSchema,
    status: 201,
  },
} as const satisfies Record<string, Route>;
