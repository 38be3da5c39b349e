import type { Caller, CallOptions } from './connection/caller.ts';

export interface ExportOptions extends CallOptions {
  readonly memory?: boolean;
  readonly image?: boolean;
  readonly env?: boolean;
}

export const flag = (on: boolean): 'true' | 'false' => (on ? 'true' : 'false');

/**
 * One file that `import` takes in on this machine or another: with the memory of a checkpoint and with its image unless
 * told otherwise, without the values of its environment unless asked for.
 */
export const exportSnapshot = (
  caller: Caller,
  snapshot: string,
  { memory = true, image = true, env = false, signal }: ExportOptions,
): AsyncGenerator<Uint8Array, void, undefined> => {
  const query = { memory: flag(memory), image: flag(image), env: flag(env) };
  return caller.bytes('exportSnapshot', { params: { snapshot }, query, signal });
};
