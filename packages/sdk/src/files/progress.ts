/** Told how far a transfer is; often, so it must be quick. */
export type Progress = (done: {
  readonly files: number;
  readonly bytes: number;
  readonly path: string;
}) => void;
