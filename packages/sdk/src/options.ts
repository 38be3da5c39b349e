import type { RouteBody, RouteQuery, SwarmEvent } from '@coppice/protocol';
import type { CallOptions } from './connection/caller.ts';

/** What every process may be given. */
export interface ProcessOptions extends CallOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  readonly timeout_ms?: number;
}

export type CreateOptions = RouteBody<'createSandbox'> & CallOptions;
export type ExecOptions = Omit<RouteBody<'exec'>, 'command'> & CallOptions;
export type JobOptions = Omit<RouteBody<'startJob'>, 'command'> & CallOptions;
export type TerminalOptions = RouteBody<'openTerminal'> & CallOptions;
export type SnapshotOptions = RouteBody<'createSnapshot'> & CallOptions;
export type ForkOptions = RouteBody<'forkSandbox'> & CallOptions;
export type RestoreOptions = Omit<RouteBody<'restoreSandbox'>, 'snapshot'> & CallOptions;
export type DiffOptions = Omit<RouteQuery<'diff'>, 'from' | 'to'> & CallOptions;
export type PatchOptions = Omit<RouteQuery<'diffPatch'>, 'from' | 'to'> & CallOptions;
export type SwarmOptions = Omit<RouteBody<'runSwarm'>, 'tasks'> &
  CallOptions & {
    /** Told when a task has ended. */
    readonly onEvent?: (event: Exclude<SwarmEvent, { type: 'swarm' }>) => void;
  };
export type DestroyOptions = RouteQuery<'destroySandbox'> & CallOptions;
export type MergeOptions = Omit<RouteBody<'merge'>, 'from'> & CallOptions;

/** A command line for the shell of the sandbox, or a program with its arguments. */
export type CommandLine = string | string[];
