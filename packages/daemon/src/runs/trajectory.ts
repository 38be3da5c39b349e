import type { RunEvent, RunEventType, Trajectory } from '@coppice/protocol';

/** What tells a reader nothing about what the agent did. */
const noise: ReadonlySet<RunEventType> = new Set([
  'agent.heartbeat',
  'agent.context',
  'usage.call',
  'message.sent',
]);
/** Of these, several in a row are one. */
const foldable: ReadonlySet<RunEventType> = new Set(['agent.output', 'agent.progress', 'agent.thinking']);

type Entry = Trajectory['entries'][number];

/**
 * Reads on until the page is full or there is nothing more: noise does not shorten a page. Where one ends is the number of its last event,
 * so events of one instant are never lost between two pages.
 */
export async function trajectoryOf(
  pages: AsyncIterable<readonly RunEvent[]>,
  limit: number,
): Promise<Trajectory> {
  const entries: Entry[] = [];
  let folded = 0;
  for await (const page of pages) {
    for (const event of page) {
      const last = entries.at(-1);
      const joins = last !== undefined && foldable.has(event.type) && last.event.type === event.type;
      if (noise.has(event.type)) {
        folded += 1;
        continue;
      }
      if (joins) {
        entries[entries.length - 1] = { ...last, to_seq: event.seq, count: last.count + 1 };
        folded += 1;
        continue;
      }
      if (entries.length === limit) return { entries, folded, next: event.seq - 1 };
      entries.push({ from_seq: event.seq, to_seq: event.seq, event, count: 1 });
    }
  }
  return { entries, folded, next: null };
}
