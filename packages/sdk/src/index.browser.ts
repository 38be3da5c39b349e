export { CoppiceError, type ErrorCode } from '@coppice/protocol/errors';
export type { BrowserOptions } from './browser/browser-transport.ts';
export { Coppice } from './browser/coppice.ts';
export type { CallOptions } from './connection/caller.ts';
export type { Progress, TakeOut } from './files/progress.ts';
export type { OutputChunk, ProcessStream, StreamedChunk } from './process-stream.ts';
export type { TerminalSession } from './terminal-session.ts';
export type * from './types.ts';
