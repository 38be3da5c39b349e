/** Told how far a transfer is; often, so it must be quick. */
export type Progress = (done: {
  readonly files: number;
  readonly bytes: number;
  readonly path: string;
}) => void;

/** How something is taken out of a sandbox onto this machine. */
export interface TakeOut {
  readonly onProgress?: Progress;
  /** What comes, as a tar, has no more bytes than this: 16 GiB unless told otherwise. */
  readonly maxBytes?: number;
  /** It holds no more files, links and directories than this: 1,000,000 unless told otherwise. */
  readonly maxFiles?: number;
}
