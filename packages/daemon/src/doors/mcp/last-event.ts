import { CoppiceError } from '@coppice/protocol';
import type { ServerEvent } from '../call.ts';

/** What a call with events ends with; the events before it go to `onEvent`. */
export const lastEvent = async <E extends { type: string }, T extends E['type']>(
  answer: Promise<AsyncIterable<ServerEvent>>,
  type: T,
  onEvent: (event: Exclude<E, { type: T }>) => void,
): Promise<Extract<E, { type: T }>> => {
  for await (const { data } of await answer) {
    const event = data as E;
    if (event.type === type) return event as Extract<E, { type: T }>;
    onEvent(event as Exclude<E, { type: T }>);
  }
  throw new CoppiceError('internal', `the call ended without ${type}`);
};
