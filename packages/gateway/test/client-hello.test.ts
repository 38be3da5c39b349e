import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { connect } from 'node:tls';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { longestHello, readClientHello } from '../src/egress/client-hello.ts';

/** What a real client sends first. */
async function helloTo(servername: string): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect({
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    ...(servername === '' ? {} : { servername }),
  });
  client.on('error', () => {});
  const [socket] = await once(server, 'connection');
  const [bytes] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  socket.destroy();
  server.close();
  return bytes;
}

/** The same hello with one more extension. */
function withExtension(hello: Buffer, type: number, body: Buffer): Buffer {
  const extension = Buffer.alloc(4 + body.length);
  extension.writeUInt16BE(type, 0);
  extension.writeUInt16BE(body.length, 2);
  body.copy(extension, 4);
  const longer = Buffer.concat([hello, extension]);
  const session = longer[5 + 4 + 34] ?? 0;
  const suitesAt = 5 + 4 + 35 + session;
  const methodsAt = suitesAt + 2 + longer.readUInt16BE(suitesAt);
  const extensionsAt = methodsAt + 1 + (longer[methodsAt] ?? 0);
  longer.writeUInt16BE(longer.readUInt16BE(3) + extension.length, 3);
  longer.writeUIntBE(longer.readUIntBE(6, 3) + extension.length, 6, 3);
  longer.writeUInt16BE(longer.readUInt16BE(extensionsAt) + extension.length, extensionsAt);
  return longer;
}

describe('the greeting of a TLS client', () => {
  it('says which server is meant', async () => {
    const hello = { serverName: 'good.example.com', hidesItsName: false };
    expect(readClientHello(await helloTo('good.example.com'))).toEqual({ state: 'whole', hello });
  });

  it('may name no server', async () => {
    const hello = { serverName: undefined, hidesItsName: false };
    expect(readClientHello(await helloTo(''))).toEqual({ state: 'whole', hello });
  });

  it('is waited for until it is whole, also where it is cut into several records', async () => {
    const bytes = await helloTo('good.example.com');
    for (let length = 0; length < bytes.length; length += 7)
      expect(readClientHello(bytes.subarray(0, length)).state).toBe('partial');
    const body = bytes.subarray(5);
    const records = [body.subarray(0, 3), body.subarray(3, 50), body.subarray(50)].map((part) => {
      const head = Buffer.from([22, 3, 1, 0, 0]);
      head.writeUInt16BE(part.length, 3);
      return Buffer.concat([head, part]);
    });
    expect(readClientHello(Buffer.concat(records))).toEqual(readClientHello(bytes));
  });

  it('is seen through where it hides the name that it means', async () => {
    const bytes = withExtension(await helloTo('good.example.com'), 0xfe0d, Buffer.from([0, 1, 2]));
    expect(readClientHello(bytes)).toMatchObject({ state: 'whole', hello: { hidesItsName: true } });
  });

  it('is refused where it names two servers', async () => {
    const second = Buffer.from('\0\x11\0\0\x0eevil.example.x', 'latin1');
    expect(readClientHello(withExtension(await helloTo('good.example.com'), 0, second)).state).toBe('broken');
  });

  it('never throws and never waits for more than its bound, whatever it holds', async () => {
    const real = await helloTo('good.example.com');
    const flips = fc.array(fc.tuple(fc.nat(real.length - 1), fc.nat(255)), { maxLength: 6 });
    fc.assert(
      fc.property(flips, fc.nat(real.length), (changes, length) => {
        const bytes = Buffer.from(real.subarray(0, length));
        for (const [at, value] of changes) if (at < length) bytes[at] = value;
        expect(['whole', 'partial', 'broken']).toContain(readClientHello(bytes).state);
      }),
      { numRuns: 3000 },
    );
    const endless = Buffer.alloc(longestHello + 4096, 0);
    Buffer.from([22, 3, 1, 255, 255, 1, 0, 127, 255]).copy(endless);
    expect(readClientHello(endless).state).toBe('broken');
  });
});
