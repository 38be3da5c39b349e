import type { FileContent } from './file-content.ts';

export interface ExtendedAttribute {
  readonly name: string;
  readonly value: Buffer;
}

export interface NodeAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: bigint;
  /** All that it has of user.*, capabilities and access control lists. */
  readonly extended: readonly ExtendedAttribute[];
}

/**
 * Where a merge is written to: a running sandbox through its agent, or the upper of a stopped one. Paths are absolute, as
 * seen inside. The parents of what is written are there.
 */
export interface TreeWriter {
  /** Replaces what stands there, of whatever kind. Holes stay holes. */
  writeFile(path: string, content: FileContent, attributes: NodeAttributes): Promise<void>;
  /** Replaces what stands there, of whatever kind. */
  makeSymlink(path: string, target: string, attributes: NodeAttributes): Promise<void>;
  /** A directory that stands there stays as it is, with what is in it; anything else is replaced. */
  makeDirectory(path: string, attributes: NodeAttributes): Promise<void>;
  /** With all that is in it; absent is fine. */
  remove(path: string): Promise<void>;
  /** Replaces what stands there, of whatever kind, by one more name of a file that is there. */
  makeLink(path: string, existing: string): Promise<void>;
  /** Of whatever is there, a link itself included. Afterwards it has these and no other extended attributes. */
  setAttributes(path: string, attributes: NodeAttributes): Promise<void>;
}
