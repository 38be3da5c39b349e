import type { RouteResult } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { Coppice } from '@coppice/sdk';

export type Health = RouteResult<'health'>;

const answerWithinMs = 5000;

/** What the daemon of a home says of itself; nothing when it does not answer. */
export const askHealth = async (home: string): Promise<Health | undefined> => {
  using coppice = new Coppice({ home });
  try {
    return await coppice.health({ signal: AbortSignal.timeout(answerWithinMs) });
  } catch (error) {
    if (error instanceof CoppiceError && (error.code === 'unavailable' || error.code === 'cancelled')) {
      return undefined;
    }
    throw error;
  }
};
