import { expect, test } from 'vitest';
import { parseServerSentEvents, type ServerSentEvent } from '../src/connection/server-sent-events.ts';

const parse = async (chunks: readonly Buffer[]): Promise<ServerSentEvent[]> => {
  async function* bytes() {
    yield* chunks;
  }
  const events: ServerSentEvent[] = [];
  for await (const event of parseServerSentEvents(bytes())) events.push(event);
  return events;
};

test('events are found however the bytes are cut, also inside a character', async () => {
  const whole = Buffer.from(
    ': hello\n\nid: 7\nevent: change\ndata: {"a":"né"}\n\ndata: one\r\ndata: two\r\n\r\n',
  );
  const expected = [
    { id: '7', event: 'change', data: '{"a":"né"}' },
    { id: undefined, event: 'message', data: 'one\ntwo' },
  ];
  for (let size = 1; size <= whole.length; size += 1) {
    const chunks = [];
    for (let at = 0; at < whole.length; at += size) chunks.push(whole.subarray(at, at + size));
    expect(await parse(chunks)).toEqual(expected);
  }
});

test('an event that was cut off by the end of the stream is not delivered', async () => {
  expect(await parse([Buffer.from('data: whole\n\ndata: half')])).toEqual([
    { id: undefined, event: 'message', data: 'whole' },
  ]);
});
