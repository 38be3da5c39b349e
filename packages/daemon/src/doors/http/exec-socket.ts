import { CoppiceError, execStreamControlSchema, execStreamStartSchema } from '@coppice/protocol';
import type { z } from 'zod';
import type { DoorServices } from '../../door-services.ts';
import type { ExecStream } from '../../inside/exec-service.ts';
import { JsonShape } from '../../text/json-shape.ts';
import { invalidInput } from '../problem.ts';
import type { MessageSocket } from './message-socket.ts';

const stdoutMark = 1;
const stderrMark = 2;

export const parseMessage = <T extends z.ZodType>(schema: T, text: string): z.output<T> => {
  new JsonShape().feed(Buffer.from(text));
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new CoppiceError('invalid_argument', 'a text message is not JSON');
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw invalidInput(parsed.error, 'message');
  return parsed.data;
};

const takeInput = async (socket: MessageSocket, process: ExecStream): Promise<void> => {
  for (let message = await socket.next(); message !== undefined; message = await socket.next()) {
    if ('binary' in message) {
      // A process that closed its input, or ended, is no failure: its exit says the rest.
      await process.writeStdin(message.binary).catch(() => {});
      continue;
    }
    const control = parseMessage(execStreamControlSchema, message.text);
    if (control.type === 'stdin_end') await process.endStdin().catch(() => {});
    else await process.signal(control.signal);
  }
};

/** One command over one WebSocket: see execStreamStartSchema and its neighbours for the messages. */
export const runOverSocket = async (
  exec: DoorServices['exec'],
  ref: string,
  socket: MessageSocket,
): Promise<void> => {
  const first = await socket.first();
  if (first === undefined) return;
  if (!('text' in first))
    throw new CoppiceError('invalid_argument', 'the first message must be `start`, as text');
  const { type: _, ...command } = parseMessage(execStreamStartSchema, first.text);
  const process = await exec.stream(ref, command);
  try {
    socket.send(JSON.stringify({ type: 'started', pid: process.pid }));
    const refused = Promise.withResolvers<never>();
    takeInput(socket, process).then(() => process.close(), refused.reject);
    const working = async () => {
      for await (const chunk of process.output) {
        const message = chunk.marked(chunk.stream === 'stdout' ? stdoutMark : stderrMark);
        const sent = socket.send(message, chunk.release);
        if (sent !== undefined) await sent;
      }
      await socket.send(JSON.stringify({ type: 'exit', ...(await process.exit) }));
    };
    await Promise.race([working(), refused.promise]);
  } finally {
    process.close();
  }
};
