import { shortId } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

export const pin: JvsCommand = {
  name: 'pin',
  usage: 'REF [--reason TEXT]',
  summary: 'protect a snapshot from collection',
  options: [{ name: 'reason', kind: 'value', value: 'TEXT', help: 'the reason' }],
  least: 1,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const snapshot = workspace.resolve(context.args.words[0] ?? '');
    const reason = context.args.value('reason') ?? '';
    await workspace.pin(snapshot, reason);
    context.answer({ snapshot_id: snapshot.snapshot_id, pinned: true, reason }, () => [
      `Pinned ${shortId(snapshot.snapshot_id)}.`,
    ]);
    return 0;
  },
};

export const unpin: JvsCommand = {
  name: 'unpin',
  usage: 'REF',
  summary: 'stop protecting a snapshot from collection',
  options: [],
  least: 1,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const snapshot = workspace.resolve(context.args.words[0] ?? '');
    await workspace.unpin(snapshot);
    context.answer({ snapshot_id: snapshot.snapshot_id, pinned: false }, () => [
      `Unpinned ${shortId(snapshot.snapshot_id)}.`,
    ]);
    return 0;
  },
};
