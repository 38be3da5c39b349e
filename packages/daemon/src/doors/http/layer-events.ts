interface Progress {
  readonly digest: string;
  readonly state: string;
  readonly doneBytes: number;
  readonly totalBytes: number;
}

const everyMs = 100;

export const layerEvent = ({ digest, state, doneBytes, totalBytes }: Progress): object => ({
  type: 'layer',
  digest,
  state,
  done_bytes: doneBytes,
  total_bytes: totalBytes,
});

/** Of each layer every change of its state, and how far it is only so often: nobody reads faster. */
export const occasionally = <P extends Progress>(report: (progress: P) => void): ((progress: P) => void) => {
  const last = new Map<string, { state: string; atMs: number }>();
  return (progress) => {
    const before = last.get(progress.digest);
    const nowMs = performance.now();
    if (before?.state === progress.state && nowMs - before.atMs < everyMs) return;
    last.set(progress.digest, { state: progress.state, atMs: nowMs });
    report(progress);
  };
};
