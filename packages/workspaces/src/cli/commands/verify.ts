import { printable } from '@coppice/console';
import { CoppiceError, errorKinds } from '@coppice/protocol/errors';
import { shortId } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

export const verify: JvsCommand = {
  name: 'verify',
  usage: '[REF | --all]',
  summary: 'read what a snapshot holds (HEAD by default) and compare everything with its hash',
  options: [{ name: 'all', kind: 'flag', help: 'every snapshot' }],
  least: 0,
  most: 1,
  async run(context) {
    const workspace = await context.open();
    const [reference] = context.args.words;
    const all = context.args.has('all');
    if (all && reference !== undefined)
      throw new CoppiceError('invalid_argument', 'give a snapshot or --all, not both');
    const targets = all
      ? [...workspace.session.state.snapshots.values()]
      : [workspace.resolve(reference ?? 'HEAD')];
    const reports = await workspace.verify(targets);
    context.answer(all ? reports : reports[0], () =>
      reports.flatMap(({ snapshot_id, ok, problems }) => [
        `${ok ? 'OK     ' : 'DAMAGED'} ${shortId(snapshot_id)}`,
        ...problems.map(({ path, problem }) => `  ${printable(path)}: ${problem}`),
      ]),
    );
    return reports.every(({ ok }) => ok) ? 0 : errorKinds.corrupt.exitCode;
  },
};
