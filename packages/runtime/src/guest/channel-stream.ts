import type { Channel } from './channel.ts';
import type { Piece } from './piece.ts';

interface Ending {
  /** The caller stopped before the end. */
  readonly onAbandoned: () => void;
  /** The caller has taken everything, or has stopped. */
  readonly onFinished?: () => void;
}

/** The data of a channel as an async iterable that may be iterated once. */
export const iterateChannel = <T>(
  channel: Channel,
  map: (piece: Piece) => T,
  ending: Ending,
): AsyncIterableIterator<T> => {
  let over = false;
  const finish = () => {
    over = true;
    ending.onFinished?.();
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      if (over) return { done: true, value: undefined };
      try {
        const piece = await channel.read();
        if (piece !== undefined) return { done: false, value: map(piece) };
      } catch (error) {
        finish();
        throw error;
      }
      finish();
      return { done: true, value: undefined };
    },
    async return() {
      if (!over) {
        ending.onAbandoned();
        finish();
      }
      return { done: true, value: undefined };
    },
  };
};
