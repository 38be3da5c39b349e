import { CoppiceError, type execSchema } from '@coppice/protocol';
import type { z } from 'zod';
import type { DoorServices } from '../../door-services.ts';
import { outputText } from '../../inside/output-text.ts';
import type { ServerEvent } from '../call.ts';

/** One command as server-sent events: started, stdout, stderr, exit. */
export const execEvents = async (
  exec: DoorServices['exec'],
  ref: string,
  input: z.output<typeof execSchema>,
  signal: AbortSignal,
): Promise<AsyncIterable<ServerEvent>> => {
  if (input.stdin !== undefined && input.stdin_base64 !== undefined) {
    throw new CoppiceError('invalid_argument', 'give stdin or stdin_base64, not both');
  }
  const process = await exec.stream(ref, input);
  signal.addEventListener('abort', () => process.close(), { once: true });
  if (signal.aborted) process.close();
  const feed = async () => {
    const bytes =
      input.stdin_base64 === undefined
        ? Buffer.from(input.stdin ?? '')
        : Buffer.from(input.stdin_base64, 'base64');
    if (bytes.length > 0) await process.writeStdin(bytes);
    await process.endStdin();
  };
  // A process that ends before it has read its input is no failure: its exit says the rest.
  feed().catch(() => {});
  async function* events(): AsyncIterable<ServerEvent> {
    try {
      yield { event: 'started', data: { pid: process.pid } };
      for await (const { stream, data } of process.output) yield { event: stream, data: outputText(data) };
      yield { event: 'exit', data: await process.exit };
    } finally {
      process.close();
    }
  }
  return events();
};
