import type { SandboxDetail } from '@coppice/protocol';
import { signal } from '@preact/signals';
import { client, noticeSignOut } from '../app/session.ts';

export interface Usage {
  /** Share of one processor, the newest last. */
  readonly cpu: readonly number[];
  readonly memoryBytes: number;
  readonly diskBytes: number;
  readonly pids: number;
}

const kept = 30;
const measured = new Map<string, { readonly atMs: number; readonly cpuUsec: number }>();

/** By sandbox; what was measured since the page was opened. */
export const usage = signal<ReadonlyMap<string, Usage>>(new Map());

/** Takes in a measurement that somebody made, whoever it was. */
const measure = ({ id, usage: found }: SandboxDetail): void => {
  const next = new Map(usage.value);
  if (found === null) {
    next.delete(id);
    measured.delete(id);
  } else {
    const before = measured.get(id);
    const atMs = performance.now();
    const share =
      before === undefined
        ? []
        : [Math.max(0, (found.cpu_usec - before.cpuUsec) / 1000 / (atMs - before.atMs))];
    measured.set(id, { atMs, cpuUsec: found.cpu_usec });
    next.set(id, {
      cpu: [...(next.get(id)?.cpu ?? []), ...share].slice(-kept),
      memoryBytes: found.memory_bytes,
      diskBytes: found.disk_used_bytes,
      pids: found.pids,
    });
  }
  usage.value = next;
};

/** Looks at these again and again, a few at a time, until it is told to end. */
export const watchUsage = (ids: () => readonly string[], everyMs: number): (() => void) => {
  let ended = false;
  const look = async (): Promise<void> => {
    while (!ended) {
      if (!document.hidden)
        for (const id of ids()) {
          if (ended) return;
          try {
            measure(await client().sandboxes.at(id).inspect());
          } catch (error) {
            noticeSignOut(error);
          }
        }
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  };
  void look();
  return () => {
    ended = true;
  };
};
