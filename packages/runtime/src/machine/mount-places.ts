/** Names at the top of every root at which a driver may mount something. */
export const mountPlaces = ['proc', 'sys', 'dev', 'run', 'tmp', 'workspace'] as const;
