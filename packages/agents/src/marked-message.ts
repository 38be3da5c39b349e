import type { Outgoing, OutgoingMessage } from './adapter.ts';

/**
 * A message as it is given to an agent. The gateway looks for the id in what the agent sends to its model: only that proves that it
 * arrived. A text cannot end its own message or begin another one.
 */
export const marked = ({ id, text }: OutgoingMessage): string =>
  `<coppice-message id="${id}">\n${text.replaceAll(/<(?=\/?coppice-message)/g, '&lt;')}\n</coppice-message>`;

/** Ids of the messages in a text that came from `marked`. */
export const messagesIn = (text: string): string[] =>
  [...text.matchAll(/<coppice-message id="([A-Za-z0-9_.:-]{1,64})">/g)].map((match) => match[1]!);

/** Several in one prompt. */
export const promptOf = (messages: readonly Outgoing[]): string =>
  messages.map(({ id, text }) => (id === null ? text : marked({ id, text }))).join('\n\n');
