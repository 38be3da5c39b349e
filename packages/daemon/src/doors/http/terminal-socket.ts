import { terminalControlSchema } from '@coppice/protocol';
import type { DoorServices } from '../../door-services.ts';
import { parseMessage } from './exec-socket.ts';
import type { MessageSocket } from './message-socket.ts';

/** Binary messages are what is shown and typed; leaving keeps the terminal running. */
export const attachTerminal = async (
  terminals: DoorServices['terminals'],
  ref: string,
  id: number,
  show: 'bytes' | 'screen',
  socket: MessageSocket,
): Promise<void> => {
  const screen = show === 'screen' ? await terminals.attachScreen(ref, id) : undefined;
  const attachment = screen ?? (await terminals.attach(ref, id));
  try {
    const refused = Promise.withResolvers<never>();
    const typing = async () => {
      for (let message = await socket.next(); message !== undefined; message = await socket.next()) {
        if ('binary' in message) {
          await attachment.write(message.binary);
          continue;
        }
        const control = parseMessage(terminalControlSchema, message.text);
        if (control.type === 'ack') screen?.acknowledge(control.bytes);
        else if (control.type === 'resize') await terminals.resize(ref, id, control.cols, control.rows);
        else await terminals.signal(ref, id, control.signal);
      }
    };
    const showing = async () => {
      for await (const data of attachment.output) {
        const sent = socket.send(data);
        if (sent !== undefined) await sent;
      }
      await socket.send(JSON.stringify({ type: 'exit', ...(await attachment.exit) }));
    };
    // Who types and leaves at once has typed: all of it is passed on before the terminal is let go.
    const typed = typing();
    typed.catch(refused.reject);
    await Promise.race([showing(), refused.promise, typed]);
  } finally {
    attachment.detach();
  }
};
