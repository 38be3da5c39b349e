import type { Question } from '@coppice/protocol';
import { signal } from '@preact/signals';
import { client, noticeSignOut } from './session.ts';
import { events, sandboxes } from './store.ts';

/** What sandboxes want to reach and nobody has answered yet, by sandbox. Their connections wait meanwhile. */
export const questions = signal<ReadonlyMap<string, readonly Question[]>>(new Map());

/** Of each sandbox, which question about its questions was the last. */
const turns = new Map<string, number>();

/** Asks again what one of them wants to reach. An answer that a later one has overtaken counts no more. */
export const lookAtQuestions = async (id: string): Promise<void> => {
  const turn = (turns.get(id) ?? 0) + 1;
  turns.set(id, turn);
  try {
    const asked = await client().sandboxes.at(id).questions();
    if (turns.get(id) !== turn) return;
    const next = new Map(questions.value);
    if (asked.length === 0) next.delete(id);
    else next.set(id, asked);
    questions.value = next;
  } catch (error) {
    noticeSignOut(error);
  }
};

/** Those that may ask are looked at once, and again whenever an event says that one asked or was answered. */
export const watchQuestions = (): (() => void) => {
  const known = new Set<string>();
  let after = events.peek().at(-1)?.seq ?? 0;
  const stopSandboxes = sandboxes.subscribe((all) => {
    for (const { id, network } of all)
      if (network.ask && !known.has(id)) {
        known.add(id);
        void lookAtQuestions(id);
      }
  });
  const stopEvents = events.subscribe((all) => {
    const news = all.filter(({ seq, type }) => seq > after && type.startsWith('connection.'));
    after = all.at(-1)?.seq ?? after;
    for (const id of new Set(news.map(({ sandbox_id }) => sandbox_id)))
      if (id !== null) void lookAtQuestions(id);
  });
  return () => {
    stopSandboxes();
    stopEvents();
  };
};
