import { addSnapshotOptions } from '../args/snapshot-options.ts';
import { type DefineCommand, verb } from '../verb.ts';
import { snapshotAction } from './snapshot.ts';

export const define: DefineCommand = (program, cli) => {
  addSnapshotOptions(
    verb(program, 'checkpoint', 'Keep the state of a sandbox with the memory of its processes'),
  ).action(snapshotAction(cli, { memory: true }));
};
