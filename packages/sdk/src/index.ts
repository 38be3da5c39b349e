export { CoppiceError, type ErrorCode } from '@coppice/protocol/errors';
export type { CallOptions } from './connection/caller.ts';
export { defaultTakeOut } from './files/bounds.ts';
export type { Progress, TakeOut } from './files/progress.ts';
export { Coppice } from './node/coppice.ts';
export {
  type DaemonRecord,
  defaultHome,
  type EndpointOptions,
  findEndpoint,
  readDaemonRecord,
} from './node/endpoint.ts';
export { packContext } from './node/pack-context.ts';
export type { OutputChunk, ProcessStream, StreamedChunk } from './process-stream.ts';
export type { TerminalSession } from './terminal-session.ts';
export type * from './types.ts';
