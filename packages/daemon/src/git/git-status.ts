import type { GitStatus } from '@coppice/protocol';

export const statusArguments = ['status', '--porcelain=v2', '--branch', '--untracked-files=all', '-z'];

/** Fields in front of the path, by kind of record: `1` changed, `2` renamed, `u` in conflict. */
const fieldsBefore: Readonly<Record<string, number>> = { '1': 8, '2': 9, u: 10 };

const pathOf = (record: string): string => {
  let rest = record;
  for (let left = fieldsBefore[record[0]!]!; left > 0; left -= 1) rest = rest.slice(rest.indexOf(' ') + 1);
  return rest;
};

/** Reads what git says with those arguments. */
export const parseStatus = (text: string): GitStatus => {
  const status: GitStatus = {
    branch: null,
    ahead: 0,
    behind: 0,
    staged: [],
    modified: [],
    untracked: [],
    conflicted: [],
    dirty: false,
  };
  const records = text.split('\0').filter((record) => record !== '');
  for (let index = 0; index < records.length; index += 1) {
    const record = records[index]!;
    const kind = record[0]!;
    if (kind === '#') readHeader(status, record);
    else if (kind === '?') status.untracked.push(record.slice(2));
    else if (kind === 'u') status.conflicted.push(pathOf(record));
    else if (kind === '1' || kind === '2') {
      const path = pathOf(record);
      if (record[2] !== '.') status.staged.push(path);
      if (record[3] !== '.') status.modified.push(path);
      // The old name of a renamed file is a record of its own.
      if (kind === '2') index += 1;
    }
  }
  status.dirty = [status.staged, status.modified, status.untracked, status.conflicted].some(
    (list) => list.length > 0,
  );
  return status;
};

const readHeader = (status: GitStatus, record: string): void => {
  const head = /^# branch\.head (.+)$/.exec(record)?.[1];
  if (head !== undefined && head !== '(detached)') status.branch = head;
  const ahead = /^# branch\.ab \+(\d+) -(\d+)$/.exec(record);
  if (ahead === null) return;
  status.ahead = Number(ahead[1]);
  status.behind = Number(ahead[2]);
};
