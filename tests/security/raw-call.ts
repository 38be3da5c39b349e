import { type IncomingHttpHeaders, request } from 'node:http';

export interface RawCall {
  readonly method: string;
  /** As it goes over the wire: nothing is normalised. */
  readonly path: string;
  readonly token?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer | undefined;
  /** Asks to speak WebSocket. */
  readonly upgrade?: boolean;
}

export interface RawAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

const upgradeHeaders = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': Buffer.from('sixteen bytes ok').toString('base64'),
};

/** An answer that streams for ever is cut here: what came first is enough to judge it. */
const enoughBytes = 4 * 1024 * 1024;

/** One call over a connection of its own, with whatever headers and bytes a hostile caller may choose. */
export const rawCall = (url: string, call: RawCall, signal?: AbortSignal): Promise<RawAnswer> => {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const outgoing = request({
      host: hostname,
      port,
      method: call.method,
      path: call.path,
      agent: false,
      signal,
      headers: {
        ...(call.token === undefined ? {} : { authorization: `Bearer ${call.token}` }),
        ...(call.body === undefined ? {} : { 'content-length': String(Buffer.byteLength(call.body)) }),
        ...(call.upgrade ? upgradeHeaders : {}),
        ...call.headers,
      },
    });
    outgoing.on('upgrade', (incoming, socket) => {
      socket.destroy();
      resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text: '' });
    });
    outgoing.on('response', (incoming) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      const finish = (): void =>
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          text: Buffer.concat(chunks).toString(),
        });
      const endless = incoming.headers['content-type']?.startsWith('text/event-stream') ?? false;
      incoming.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        bytes += chunk.length;
        if (bytes < enoughBytes && !endless) return;
        finish();
        outgoing.destroy();
      });
      incoming.on('end', finish);
      incoming.on('error', reject);
      if (endless) {
        // Its head was sent; whether an event follows is up to the world.
        finish();
        outgoing.destroy();
      }
    });
    outgoing.on('error', reject);
    outgoing.end(call.body);
  });
};

export const jsonCall = (call: Omit<RawCall, 'body'>, body: unknown): RawCall => ({
  ...call,
  headers: { 'content-type': 'application/json', ...call.headers },
  body: JSON.stringify(body),
});
