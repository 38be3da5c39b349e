import { addSnapshotOptions } from '../args/snapshot-options.ts';
import { type DefineCommand, verb } from '../verb.ts';
import { snapshotAction } from './snapshot.ts';

export const define: DefineCommand = (program, cli) => {
  addSnapshotOptions(verb(program, 'checkpoint', 'Take a snapshot with the memory of all processes')).action(
    snapshotAction(cli, { memory: true }),
  );
};
