import type { AgentEvent } from './adapter.ts';

const longestPath = 4096;

/** A file that an agent says it changed: the lines that differ, between those that both have at the beginning and at the end. */
export function edited(path: string, before: string | null, after: string): AgentEvent {
  const old = before === null || before === '' ? [] : before.split('\n');
  const fresh = after === '' ? [] : after.split('\n');
  const least = Math.min(old.length, fresh.length);
  let head = 0;
  while (head < least && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < least - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const removed = old.slice(head, old.length - tail);
  const added = fresh.slice(head, fresh.length - tail);
  const diff = [
    `@@ -${head + 1},${removed.length} +${head + 1},${added.length} @@`,
    ...removed.map((line) => `-${line}`),
    ...added.map((line) => `+${line}`),
  ].join('\n');
  return {
    type: 'agent.file_edited',
    data: {
      path: path.slice(0, longestPath),
      change: before === null ? 'created' : 'modified',
      added: added.length,
      removed: removed.length,
      diff,
    },
  };
}
