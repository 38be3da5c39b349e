import type { z } from 'zod';

/** How the answer comes: one JSON document, a byte stream, server-sent events, or a WebSocket. */
export type Answer = 'json' | 'bytes' | 'events' | 'socket' | 'text';

/**
 * Whose tokens may make the call; scopes.ts holds the table. `public`: no token; `token`: any; `sandbox`: any that reaches the sandbox, its own
 * too; `project`: an admin token or one of the project, which sees and reaches only what belongs to that; `work`: the same, and the token of the run that the call is about;
 * `run`: the token of a run and no other, as the call says of no other run; `admin`: an
 * admin token.
 */
export type Access = 'public' | 'token' | 'sandbox' | 'project' | 'work' | 'run' | 'admin';

/** A JSON document in a body: what most calls need, what holds an environment, and what holds the content of files. */
export const documentBytes = { usual: 65_536, environment: 4_194_304, content: 37_748_736 } as const;

export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly scope: Access;
  readonly answer: Answer;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** The largest document it takes; `documentBytes.usual` where nothing is said. */
  readonly bodyBytes?: number;
  /** The body is a byte stream instead of JSON. */
  readonly upload?: true;
  /** Of the JSON document, or of each event. */
  readonly result?: z.ZodType;
  readonly status?: number;
}
