import { printable } from '@coppice/console';
import { type SnapshotRecord, shortId } from '../index.ts';

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export const sizeText = (bytes: number): string => {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
};

const two = (part: number): string => String(part).padStart(2, '0');

/** `2026-03-01 09:30:00`, where the reader is. */
export const localTime = (at: string): string => {
  const time = new Date(at);
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join('-');
  return `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':')}`;
};

/** One snapshot, one line, whatever its note holds: scripts count lines. */
export const snapshotLine = (snapshot: SnapshotRecord, head: boolean, colour: boolean): string => {
  const id = shortId(snapshot.snapshot_id);
  const [note = ''] = snapshot.note.split('\n');
  const parts = [
    colour ? `\u001b[33m${id}\u001b[0m` : id,
    localTime(snapshot.created_at),
    head ? '*' : ' ',
    printable(note),
    ...snapshot.tags.map((tag) => `[${printable(tag)}]`),
    snapshot.automatic ? '(automatic)' : '',
    snapshot.partial_paths ? `(only ${snapshot.partial_paths.map(printable).join(' ')})` : '',
  ];
  return parts.filter(Boolean).join(' ');
};
