import type { Readable } from 'node:stream';

/** The data of each server-sent event, as it comes. */
export async function* eventData(stream: Readable): AsyncIterable<string> {
  let rest = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    rest += chunk;
    const events = rest.split(/\r?\n\r?\n/);
    rest = events.pop() ?? '';
    for (const event of events) {
      const data = event
        .split(/\r?\n/)
        .filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart());
      if (data.length > 0) yield data.join('\n');
    }
  }
}
