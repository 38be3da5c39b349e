import { CoppiceError, runSocketRequestSchema } from '@coppice/protocol';
import type { DoorServices } from '../../door-services.ts';
import { parseMessage } from './exec-socket.ts';
import type { MessageSocket } from './message-socket.ts';

const mostRuns = 200;

/** Each run has its own reader, so one that says much holds up only itself; the socket takes what it can. */
export const followRuns = async (runs: DoorServices['runs'], socket: MessageSocket): Promise<void> => {
  const followed = new Map<string, AbortController>();
  const say = async (message: object) => {
    const sent = socket.send(JSON.stringify(message));
    if (sent !== undefined) await sent;
  };
  const follow = async (id: string, after: number, types: string | undefined, signal: AbortSignal) => {
    try {
      for await (const event of await runs.follow(id, { after, types }, signal))
        await say({ type: 'event', event });
    } catch (error) {
      if (!signal.aborted && socket.isOpen) throw error;
    }
  };
  const failed = Promise.withResolvers<never>();
  const listening = async () => {
    for (let message = await socket.next(); message !== undefined; message = await socket.next()) {
      if (!('text' in message)) throw new CoppiceError('invalid_argument', 'messages must be text');
      try {
        const request = parseMessage(runSocketRequestSchema, message.text);
        const { id } = await runs.find(request.run);
        followed.get(id)?.abort();
        followed.delete(id);
        if (request.type === 'unsubscribe') continue;
        if (followed.size >= mostRuns)
          throw new CoppiceError('limit_reached', `${mostRuns} runs are followed already on this connection`);
        const controller = new AbortController();
        followed.set(id, controller);
        await say({ type: 'subscribed', run: id, after: request.after });
        follow(id, request.after, request.types, controller.signal).catch(failed.reject);
      } catch (error) {
        if (!(error instanceof CoppiceError) || error.code === 'cancelled') throw error;
        await say({ type: 'error', code: error.code, message: error.message, hint: error.hint });
      }
    }
  };
  try {
    await Promise.race([listening(), failed.promise]);
  } finally {
    for (const controller of followed.values()) controller.abort();
  }
};
