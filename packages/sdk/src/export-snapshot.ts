import type { RouteBody } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import { type ExportProgress, watchExport } from './export-progress.ts';

export interface ExportOptions extends RouteBody<'exportSnapshot'>, CallOptions {
  /** Called as the file comes: which part of it this is, and how far it is by what is in it, before it was packed. */
  readonly onProgress?: (progress: ExportProgress) => void;
}

/**
 * One file that `import` takes in on this machine or another: with the memory of a checkpoint and with its image unless
 * told otherwise, without the values of its environment unless asked for.
 */
export const exportSnapshot = (
  caller: Caller,
  snapshot: string,
  { signal, onProgress, ...body }: ExportOptions,
): AsyncGenerator<Uint8Array, void, undefined> => {
  const bytes = caller.bytes('exportSnapshot', { params: { snapshot }, body, signal });
  return onProgress === undefined ? bytes : watchExport(bytes, onProgress);
};
