import { CoppiceError, type Snapshot } from '@coppice/protocol';

const notYet = (): CoppiceError =>
  new CoppiceError('unsupported', 'snapshots cannot be exported or imported yet', {
    hint: 'Download the files that matter with `coppice cp`.',
  });

/** Snapshots as files that travel between machines. */
export class TransferService {
  async export(): Promise<{ bytes: AsyncIterable<Uint8Array>; fileName: string }> {
    throw notYet();
  }

  async import(): Promise<Snapshot> {
    throw notYet();
  }
}
