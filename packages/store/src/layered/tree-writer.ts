import type { Readable } from 'node:stream';

export interface NodeAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
}

/**
 * Where a merge is written to: a running sandbox through its agent, or the upper of a stopped one. Paths are absolute, as
 * seen inside. The parents of what is written are there.
 */
export interface TreeWriter {
  /** Replaces what stands there, of whatever kind. */
  writeFile(path: string, content: Readable, attributes: NodeAttributes): Promise<void>;
  /** Replaces what stands there, of whatever kind. */
  makeSymlink(path: string, target: string, attributes: NodeAttributes): Promise<void>;
  /** A directory that stands there stays as it is, with what is in it; anything else is replaced. */
  makeDirectory(path: string, attributes: NodeAttributes): Promise<void>;
  /** With all that is in it; absent is fine. */
  remove(path: string): Promise<void>;
  /** Of a file or directory that is there. */
  setMode(path: string, attributes: NodeAttributes): Promise<void>;
}
