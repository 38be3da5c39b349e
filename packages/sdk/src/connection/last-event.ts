import { CoppiceError } from '@coppice/protocol/errors';

/** What a call with events ends with; the events before it go to `onEvent`. */
export const lastEvent = async <E extends { type: string }, T extends E['type']>(
  events: AsyncIterable<{ readonly data: string }>,
  type: T,
  onEvent: (event: Exclude<E, { type: T }>) => void,
): Promise<Extract<E, { type: T }>> => {
  for await (const { data } of events) {
    const event = JSON.parse(data) as E;
    if (event.type === type) return event as Extract<E, { type: T }>;
    onEvent(event as Exclude<E, { type: T }>);
  }
  throw new CoppiceError('unavailable', 'the daemon stopped before the call had ended');
};
