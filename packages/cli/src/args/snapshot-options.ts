import type { Command } from 'commander';
import { collect } from './key-value.ts';

export interface SnapshotFlags {
  readonly note?: string;
  readonly tag?: string[];
}

export const addSnapshotOptions = (command: Command): Command =>
  command
    .argument('<sandbox>', 'name or id')
    .argument('[name]', 'name of the snapshot; one is made up when it is left out')
    .option('-n, --note <text>', 'a note for people')
    .option('-t, --tag <tag>', 'tag (repeatable)', collect);

export const snapshotFields = (name: string | undefined, { note, tag }: SnapshotFlags) => ({
  ...(name === undefined ? {} : { name }),
  ...(note === undefined ? {} : { note }),
  ...(tag === undefined ? {} : { tags: tag }),
});
