/** What coppice-tree says about a directory that it walked. */
export interface ScanAnswer {
  /** hash:pack:offset:length */
  readonly root: string;
  readonly files: number;
  readonly directories: number;
  readonly bytes: number;
  readonly hashed: number;
  readonly newBytes: number;
  readonly newContents: number;
  readonly sockets: number;
  readonly reflinksRefused: number;
  readonly indexChanged: boolean;
  readonly packUsed: boolean;
  readonly nested: string | null;
}

export interface RestoreAnswer extends ScanAnswer {
  readonly written: number;
  readonly removed: number;
  readonly adjusted: number;
  readonly ownersRefused: number;
  readonly attributesRefused: number;
  readonly movedAside: number;
}

export const rootHash = (root: string): string => root.slice(0, 64);
