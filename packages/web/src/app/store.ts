import type { Event, Sandbox, SandboxDetail } from '@coppice/protocol';
import { batch, computed, signal } from '@preact/signals';
import { client, noticeSignOut, onlyRun, onlySandbox } from './session.ts';

export type Connection = 'connecting' | 'live' | 'lost' | 'asleep';

const eventsKept = 2_000;
const earlierEvents = 500;
/** Changes that come together are asked for together. */
const settleMs = 150;
/** With more than this changed at once, all are asked for. */
const fewSandboxes = 8;
/** Nobody looks at a page in the background: its connection is given back. */
const sleepAfterMs = 60_000;
const firstPauseMs = 100;
const longestPauseMs = 3_000;

const byId = signal<ReadonlyMap<string, Sandbox>>(new Map());
export const loaded = signal(false);
export const connection = signal<Connection>('connecting');
export const events = signal<readonly Event[]>([]);
/** Counts up whenever something changed that lists of snapshots or the lineage show. */
export const generation = signal(0);
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1_000);

/** The newest first. */
export const sandboxes = computed(() =>
  [...byId.value.values()].sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0)),
);

/** Names are unique within a project; an administrator sees several. */
export const refOf = ({ project, name }: Pick<Sandbox, 'project' | 'name'>): string =>
  project === 'default' ? name : `${project}/${name}`;

export const sandboxOf = (ref: string): Sandbox | undefined =>
  byId.value.get(ref) ?? sandboxes.value.find((sandbox) => refOf(sandbox) === ref);

/** The sandboxes that grew from a snapshot, and those that grew from them: each before what it grew from. */
export const grownFrom = (snapshotId: string): Sandbox[] => {
  const found: Sandbox[] = [];
  const add = (isGrown: (parent: NonNullable<Sandbox['parent']>) => boolean): void => {
    for (const sandbox of sandboxes.value)
      if (sandbox.parent !== null && isGrown(sandbox.parent) && !found.includes(sandbox)) {
        found.push(sandbox);
        add(({ sandbox_id }) => sandbox_id === sandbox.id);
      }
  };
  add(({ snapshot_id }) => snapshot_id === snapshotId);
  return found.reverse();
};

export const nameOf = (id: string): string => {
  const sandbox = byId.value.get(id);
  return sandbox === undefined ? id : refOf(sandbox);
};

export const hrefOf = (id: string): string => `/sandboxes/${encodeURIComponent(nameOf(id))}`;

/** Destroyed: an answer that was on its way then does not bring one back. */
const gone = new Set<string>();

const put = (changed: readonly Sandbox[], missing: readonly string[] = []): void => {
  const next = new Map(byId.value);
  for (const sandbox of changed) if (!gone.has(sandbox.id)) next.set(sandbox.id, sandbox);
  for (const id of missing) next.delete(id);
  byId.value = next;
};

const loadAll = async (): Promise<void> => {
  const only = onlySandbox();
  const all = async () => (onlyRun() === undefined ? client().sandboxes.list() : []);
  const list = only === undefined ? await all() : [await client().sandboxes.at(only).inspect()];
  byId.value = new Map(list.filter(({ id }) => !gone.has(id)).map((sandbox) => [sandbox.id, sandbox]));
  loaded.value = true;
};

const changed = new Set<string>();
let isWaiting = false;

const refresh = async (): Promise<void> => {
  isWaiting = false;
  const ids = [...changed];
  changed.clear();
  try {
    if (ids.length > fewSandboxes) await loadAll();
    else {
      const found = await Promise.all(
        ids.map((id) =>
          client()
            .sandboxes.at(id)
            .inspect()
            .catch((error: { code?: string }) => {
              if (error.code === 'not_found') return undefined;
              throw error;
            }),
        ),
      );
      put(
        found.filter((sandbox): sandbox is SandboxDetail => sandbox !== undefined),
        ids.filter((_, index) => found[index] === undefined),
      );
    }
    generation.value += 1;
  } catch (error) {
    noticeSignOut(error);
  }
};

const touch = (id: string): void => {
  changed.add(id);
  if (isWaiting) return;
  isWaiting = true;
  setTimeout(() => void refresh(), settleMs);
};

/** What a call of ours answered with; the event about it may come later. */
export const saw = (sandbox: Sandbox): void => put([sandbox]);
export const lost = (id: string): void => {
  gone.add(id);
  changed.delete(id);
  put([], [id]);
  generation.value += 1;
};

const take = (event: Event): void => {
  const kept = events.value;
  // After a loss of the connection the daemon goes on after the last one; whatever happens, none is shown twice.
  if (kept.length > 0 && event.seq <= kept.at(-1)!.seq) return;
  batch(() => {
    events.value = [...(kept.length >= eventsKept ? kept.slice(1) : kept), event];
    if (event.type === 'sandbox.destroyed') lost(event.sandbox_id!);
    else if (event.sandbox_id !== null) touch(event.sandbox_id);
    else generation.value += 1;
  });
};

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** From the last event on, again and again: a daemon that restarts and a page that wakes up both go on without a gap. */
const follow = async (): Promise<void> => {
  let pauseMs = firstPauseMs;
  for (;;) {
    if (document.hidden) {
      connection.value = 'asleep';
      await new Promise<void>((resolve) =>
        document.addEventListener('visibilitychange', () => resolve(), { once: true }),
      );
      continue;
    }
    const abort = new AbortController();
    let sleepTimer: ReturnType<typeof setTimeout> | undefined;
    const onVisibility = (): void => {
      clearTimeout(sleepTimer);
      if (document.hidden) sleepTimer = setTimeout(() => abort.abort(), sleepAfterMs);
    };
    document.addEventListener('visibilitychange', onVisibility);
    try {
      const onOpen = (): void => {
        connection.value = 'live';
        pauseMs = firstPauseMs;
      };
      const after = events.value.at(-1)?.seq ?? 0;
      for await (const event of client().events.once({ after, signal: abort.signal, onOpen })) take(event);
    } catch (error) {
      noticeSignOut(error);
      if ((error as { code?: string }).code === 'unauthenticated') return;
    } finally {
      document.removeEventListener('visibilitychange', onVisibility);
      clearTimeout(sleepTimer);
    }
    if (abort.signal.aborted) continue;
    connection.value = 'lost';
    await pause(pauseMs);
    pauseMs = Math.min(pauseMs * 2, longestPauseMs);
  }
};

/** Events first, then what they are about: what happens in between is asked for again, and nothing is missed. */
export const start = async (): Promise<void> => {
  for (;;) {
    try {
      const { last_seq } = await client().events.list({ limit: 1 });
      const after = Math.max(0, last_seq - earlierEvents);
      events.value = (await client().events.list({ after, limit: eventsKept })).events;
      await loadAll();
      break;
    } catch (error) {
      noticeSignOut(error);
      if ((error as { code?: string }).code === 'unauthenticated') return;
      connection.value = 'lost';
      await pause(longestPauseMs);
    }
  }
  void follow();
};
