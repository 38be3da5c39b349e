import { randomBytes } from 'node:crypto';
import { once as eventOnce } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { CoppiceError } from '@coppice/protocol';
import { whereMemoryIsFreed } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FrameDecoder } from '../src/guest/frame-decoder.ts';
import { connectGuest, type Guest, GuestLink } from '../src/index.ts';
import { type Agent, collect, once, residentBytes, run, startAgent } from './guest/start-agent.ts';

let agent: Agent;
beforeAll(async () => {
  agent = await startAgent({ asInit: true });
});
afterAll(() => agent.stop());

const frame = (type: number, channel: number, payload: Buffer = Buffer.alloc(0), flags = 0): Buffer => {
  const header = Buffer.alloc(12);
  header.writeUInt32LE(payload.length, 0);
  header[4] = type;
  header[5] = flags;
  header.writeUInt32LE(channel, 8);
  return Buffer.concat([header, payload]);
};
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const hello = (version = 1) =>
  frame(1, 0, Buffer.concat([Buffer.from('COPPICE1'), u32(version), Buffer.alloc(8, 7)]));
const request = (channel: number, op: number, body: Buffer, window = 65_536) =>
  frame(2, channel, Buffer.concat([Buffer.of(op), u32(window), body]));
const string = (text: string) =>
  Buffer.concat([u32(Buffer.byteLength(text)), Buffer.from(text), Buffer.of(0)]);
/** Any text is a name to it. */
const hostnameOperation = 22;
const catBody = Buffer.concat([u32(0), string(''), string('/'), u32(1), string('cat'), u32(0)]);

/** Sends bytes to the agent and gives all that it says until it closes the connection. */
const provoke = async (...parts: Buffer[]): Promise<string> => {
  const socket = connect(agent.socketPath);
  await eventOnce(socket, 'connect');
  socket.write(Buffer.concat(parts));
  return (await collect(socket)).toString('latin1');
};

describe('the agent, against a hostile host', () => {
  it('changes nothing of this machine outside of its directory, whatever these tests ask of it', async () => {
    const name = `coppice-astray-${process.pid}`;
    for (const place of ['/', '/tmp', '/run', '/usr', '/etc', '/dev', '/proc', '/var/lib', tmpdir()]) {
      await agent.guest.write(join(place, name), once('x'), { createParents: true }).catch(() => undefined);
      await agent.guest.mkdir(join(place, `${name}.d`)).catch(() => undefined);
      expect([existsSync(join(place, name)), existsSync(join(place, `${name}.d`))]).toEqual([false, false]);
    }
    await expect(agent.guest.move('/etc/passwd', '/etc/gone')).rejects.toMatchObject({ code: 'forbidden' });
    expect((await run(agent.guest, ['kill', '-0', String(process.pid)])).exit.code).not.toBe(0);
  });

  it.each<[string, RegExp, Buffer[]]>([
    ['garbage', /malformed/, [Buffer.alloc(100, 0xee)]],
    ['a frame before the hello', /not a hello/, [request(1, 1, catBody)]],
    ['a hello of another version', /version 1/, [hello(99)]],
    ['a hello cut short', /malformed/, [frame(1, 0, Buffer.from('COPP'))]],
    ['a frame that is too large', /malformed/, [hello(), Buffer.concat([u32(70_000), Buffer.alloc(8, 4)])]],
    ['an unknown type', /malformed/, [hello(), frame(99, 1)]],
    ['a type that only the agent sends', /malformed/, [hello(), frame(9, 1)]],
    ['data for a channel that never was', /never opened/, [hello(), frame(4, 5, Buffer.from('x'))]],
    ['a channel used twice', /reuses/, [hello(), request(1, 1, catBody), request(1, 1, catBody)]],
    [
      'more data than was granted',
      /not granted/,
      [
        hello(),
        request(1, 18, Buffer.concat([string('/'), Buffer.of(0)])),
        ...Array.from({ length: 40 }, () => frame(4, 1, Buffer.alloc(65_536))),
      ],
    ],
    [
      'data for a call that takes none',
      /not granted/,
      [
        hello(),
        request(1, 13, Buffer.concat([string('/proc/version'), Buffer.alloc(8), Buffer.alloc(8, 0xff)]), 0),
        frame(4, 1, Buffer.from('x')),
      ],
    ],
    ['a window without end', /window/, [hello(), request(1, 1, catBody, 0xffff_ffff)]],
    [
      'a credit that is malformed',
      /credit/,
      [hello(), request(1, 1, catBody), frame(6, 1, Buffer.from('xyz'))],
    ],
    [
      'credit without end',
      /credit/,
      [hello(), request(1, 1, catBody), ...Array.from({ length: 5 }, () => frame(6, 1, u32(16 << 20)))],
    ],
    ['an end twice', /ended twice/, [hello(), request(1, 1, catBody), frame(5, 1), frame(5, 1)]],
    ['a signal that is none', /signal/, [hello(), request(1, 1, catBody), frame(7, 1, u32(1000))]],
    [
      'a request without end',
      /4 MiB/,
      [hello(), ...Array.from({ length: 70 }, () => frame(2, 1, Buffer.alloc(65_536), 1))],
    ],
    [
      'requests that interleave',
      /complete/,
      [hello(), frame(2, 1, Buffer.alloc(10), 1), frame(2, 2, Buffer.alloc(10))],
    ],
    ['a request without an operation', /no operation/, [hello(), frame(2, 1)]],
  ])('answers %s with a reason and closes', async (_, reason, parts) => {
    expect(await provoke(...parts)).toMatch(reason);
    expect((await run(agent.guest, ['echo', 'unharmed'])).stdout).toBe('unharmed\n');
  });

  it('refuses bodies that make no sense, and keeps the connection', async () => {
    const bodies = [
      Buffer.alloc(1),
      Buffer.alloc(64, 0xff),
      string('relative'),
      Buffer.concat([u32(5), Buffer.from('/a\0bc'), Buffer.of(0)]),
      // Neither the end of an empty text nor a signal.
      Buffer.concat([u32(0), Buffer.of(0xff)]),
    ];
    const operations = Array.from({ length: 30 }, (_, i) => i).filter((op) => op !== hostnameOperation);
    const requests = bodies.flatMap((body, b) => operations.map((op) => request(1 + b * 100 + op, op, body)));
    const socket = connect(agent.socketPath);
    await eventOnce(socket, 'connect');
    socket.write(Buffer.concat([hello(), ...requests]));
    const codes: string[] = [];
    let seen = Buffer.alloc(0);
    for await (const chunk of socket) {
      seen = Buffer.concat([seen, chunk]);
      while (seen.length >= 12 && seen.length >= 12 + seen.readUInt32LE(0)) {
        const payload = seen.subarray(12, 12 + seen.readUInt32LE(0));
        if (seen[4] === 10) codes.push(payload.toString('latin1', 4, 4 + payload.readUInt32LE(0)));
        seen = seen.subarray(12 + payload.length);
      }
      if (codes.length === requests.length) break;
    }
    expect(new Set(codes)).toEqual(new Set(['invalid_argument', 'unsupported']));
    socket.destroy();
    expect((await run(agent.guest, ['echo', 'unharmed'])).stdout).toBe('unharmed\n');
  });

  it('survives random bytes after the hello, byte by byte and in one piece', async () => {
    for (let round = 0; round < 200; round++) {
      const socket = connect(agent.socketPath);
      socket.on('error', () => {});
      await eventOnce(socket, 'connect');
      socket.write(hello());
      const noise = randomBytes(4 + Math.floor(Math.random() * 3000));
      if (round % 2 === 0) noise.writeUInt32LE(noise.length % 4000, 0);
      socket.end(noise);
      socket.resume();
      await eventOnce(socket, 'close');
    }
    expect((await run(agent.guest, ['echo', 'unharmed'])).stdout).toBe('unharmed\n');
  });

  it('does not grow for a host that asks and never listens', whereMemoryIsFreed, async () => {
    const before = await residentBytes(agent.guest, 1);
    const socket = connect(agent.socketPath);
    socket.on('error', () => {});
    await eventOnce(socket, 'connect');
    socket.pause();
    socket.write(hello());
    const asks = Buffer.concat(Array.from({ length: 1000 }, (_, i) => request(i + 1, 11, string('/'))));
    const followUp = (from: number) =>
      Buffer.concat(Array.from({ length: 1000 }, (_, i) => request(from + i, 11, string('/'))));
    socket.write(asks);
    for (let i = 1; i < 100; i++) socket.write(followUp(i * 1000 + 1));
    expect((await run(agent.guest, ['echo', 'unharmed'])).stdout).toBe('unharmed\n');
    expect((await residentBytes(agent.guest, 1)) - before).toBeLessThan(8 << 20);
    socket.destroy();
  });

  it('has a limit of open calls', async () => {
    const other = await connectGuest(agent.socketPath);
    const job = await other.startJob({ argv: ['sleep', '1000'] });
    const waiting = Array.from({ length: 1030 }, () =>
      other.readJob(job.id, { waitMs: 600_000 }).then(
        () => 'answered',
        (error) => error.code,
      ),
    );
    expect(await Promise.race(waiting.slice(1024))).toBe('limit_reached');
    await agent.guest.signalJob(job.id, 9);
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(['answered', 'limit_reached']));
    other.close();
  });
});

describe('the client, against a hostile agent', () => {
  const serve = async (
    onConnection: (socket: Socket) => void,
    use: (path: string) => Promise<void>,
  ): Promise<void> => {
    const dir = mkdtempSync(join(tmpdir(), 'coppice-fake-agent-'));
    const server: Server = createServer((socket) => {
      socket.on('error', () => {});
      onConnection(socket);
    }).listen(join(dir, 's'));
    await eventOnce(server, 'listening');
    try {
      await use(join(dir, 's'));
    } finally {
      server.close();
      rmSync(dir, { recursive: true, force: true });
    }
  };

  /** Greets as it should, then answers the first request with these bytes. */
  const answering = (bytes: Buffer) => (socket: Socket) => {
    socket.once('data', (greeting) => {
      const nonce = greeting.subarray(24, 32);
      const body = Buffer.concat([Buffer.from('COPPICE1'), u32(1), nonce, u32(1), u32(262_144)]);
      socket.write(frame(1, 0, body));
      socket.once('data', () => socket.write(bytes));
    });
  };

  it.each<[string, Buffer]>([
    ['garbage', Buffer.alloc(64, 0xee)],
    ['a frame without end', Buffer.concat([u32(0xffff_ffff), Buffer.alloc(8, 4)])],
    ['an answer to a call that was never made', frame(9, 77)],
    [
      'more data than was granted',
      Buffer.concat(Array.from({ length: 33 }, () => frame(4, 1, Buffer.alloc(65_536)))),
    ],
    ['a piece of data that is empty', frame(4, 1)],
    ['a second reply', Buffer.concat([frame(3, 1), frame(3, 1)])],
    ['a second end', Buffer.concat([frame(5, 1), frame(5, 1)])],
    ['a credit of nothing', frame(6, 1, u32(0))],
    ['a credit for what was never sent', frame(6, 1, u32(1))],
    ['a second hello', frame(1, 0, Buffer.alloc(28))],
    ['a request', frame(2, 1)],
    ['data of a third stream', frame(4, 1, Buffer.from('x'), 2)],
    ['an error that is malformed', frame(10, 1, Buffer.from('nonsense'))],
    [
      'an error for the connection',
      frame(10, 0, Buffer.concat([string('internal'), string(''), string('no more')])),
    ],
  ])('%s closes the link with a reason', async (_, bytes) => {
    await serve(answering(bytes), async (path) => {
      const guest = await connectGuest(path);
      // Some of it comes after a first answer that is as it should be.
      await guest.exec({ argv: ['true'] }).catch(() => undefined);
      await guest.closed;
      await expect(guest.listJobs()).rejects.toMatchObject({ code: 'unavailable' });
    });
  });

  it.each<[string, Buffer]>([
    ['nothing', Buffer.alloc(0)],
    ['a list that says it is longer than it is', Buffer.concat([Buffer.alloc(44), u32(0xffff_ffff)])],
    ['random bytes', randomBytes(300)],
  ])('a result of %s is an error, not a crash', async (_, data) => {
    await serve(answering(Buffer.concat([frame(4, 1, data), frame(9, 1, data)])), async (path) => {
      const guest = await connectGuest(path);
      await expect(guest.stat('/')).rejects.toMatchObject({ code: expect.any(String) });
      guest.close();
    });
  });

  /** What the process holds, without what only waits to be collected. */
  const heldBytes = (): number => {
    setFlagsFromString('--expose-gc');
    (runInNewContext('gc') as () => void)();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  /** As many frames of one byte; of one stream, or of the two in turn. */
  const crumbs = (count: number, streams: 1 | 2): Buffer => {
    const bytes = Buffer.alloc(count * 13);
    for (let i = 0; i < count; i++) frame(4, 1, Buffer.of(65), i % streams).copy(bytes, i * 13);
    return bytes;
  };
  const mebi = 1 << 20;

  it.each([1, 2] as const)(
    'data that comes byte by byte in %i streams takes no more memory than in one piece',
    async (streams) => {
      const pid = frame(3, 1, u32(7));
      const bytes = Buffer.concat([pid, crumbs(mebi, streams), frame(9, 1, Buffer.of(1, 0, 0))]);
      await serve(answering(bytes), async (path) => {
        const guest = await connectGuest(path);
        const before = heldBytes();
        const child = await guest.exec({ argv: ['true'] });
        expect(await child.exit).toMatchObject({ code: 0 });
        expect(heldBytes() - before).toBeLessThan(32 * mebi);
        let seen = 0;
        for await (const { data } of child.output) seen += data.length;
        expect(seen).toBe(mebi);
        guest.close();
      });
    },
  );

  it('a result that comes byte by byte takes no more memory than in one piece', async () => {
    await serve(answering(Buffer.concat([crumbs(mebi, 1), frame(9, 2)])), async (path) => {
      const guest = await connectGuest(path);
      const before = heldBytes();
      const asked = guest.listJobs();
      asked.catch(() => {});
      // Its answer, which is none, comes behind all the rest.
      await expect(guest.stat('/')).rejects.toThrow();
      expect(heldBytes() - before).toBeLessThan(32 * mebi);
      guest.close();
    });
  });

  it('a frame that comes byte by byte is taken as one', () => {
    const message = frame(10, 1, Buffer.concat([string('internal'), string(''), string('x'.repeat(60_000))]));
    const decoder = new FrameDecoder({
      onFrame: (type, _flags, channel, payload) => {
        seen.push(type, channel, payload.length);
      },
      onData: () => {},
    });
    const seen: number[] = [];
    for (let round = 0; round < 3; round++) for (const byte of message) decoder.push(Buffer.of(byte));
    expect(seen).toEqual(Array.from({ length: 3 }, () => [10, 1, message.length - 12]).flat());
  });

  it.each<[string, (guest: Guest) => Promise<unknown>, Buffer]>([
    [
      'more of a file than was asked for',
      async (guest) => collect(guest.read('/x', { length: 10 })),
      Buffer.concat([frame(4, 1, Buffer.alloc(11)), frame(9, 1)]),
    ],
    [
      'more entries than were asked for',
      (guest) => guest.list('/', { limit: 2 }),
      Buffer.concat([
        ...Array.from({ length: 3 }, () =>
          frame(4, 1, Buffer.concat([Buffer.alloc(29), string('/x'), Buffer.of(0)])),
        ),
        frame(9, 1, Buffer.of(0)),
      ]),
    ],
    [
      'pieces of a log that are empty',
      (guest) => guest.readJob(1, {}),
      Buffer.concat([frame(4, 1, Buffer.alloc(19 + 5 * 100)), frame(9, 1)]),
    ],
    [
      'a log without end',
      (guest) => guest.readJob(1, { maxBytes: 1000 }),
      Buffer.concat([
        frame(4, 1, Buffer.concat([Buffer.alloc(19), Buffer.of(0), u32(2000), Buffer.alloc(2000)])),
        frame(9, 1),
      ]),
    ],
  ])('%s are refused', async (_, ask, bytes) => {
    await serve(answering(bytes), async (path) => {
      const guest = await connectGuest(path);
      await expect(ask(guest)).rejects.toMatchObject({ details: { reason: 'protocol' } });
      guest.close();
    });
  });

  it('data for a call that was given up is taken as far as it was granted, and no further', async () => {
    const flood = Buffer.concat(Array.from({ length: 64 }, () => frame(4, 1, Buffer.alloc(65_536))));
    const onConnection = (socket: Socket) => {
      answering(frame(3, 1, u32(7)))(socket);
      socket.on('data', (data) => {
        // The cancellation, which is the last frame of all.
        if (data.length >= 12 && data[data.length - 8] === 8) socket.write(flood);
      });
    };
    await serve(onConnection, async (path) => {
      const guest = await connectGuest(path);
      const child = await guest.exec({ argv: ['true'] });
      child.close();
      await guest.closed;
    });
  });

  it('an agent that greets and then is silent does not keep a fork waiting', async () => {
    await serve(answering(Buffer.alloc(0)), async (path) => {
      const guest = await connectGuest(path);
      const notice = { sandboxId: 'sb_x', name: 'x', hostname: 'x', entropy: Buffer.alloc(1) };
      const timeoutMs = 20;
      await expect(guest.announceFork(notice, { timeoutMs })).rejects.toMatchObject({ code: 'timeout' });
      await expect(guest.setHostname('x', { timeoutMs })).rejects.toMatchObject({ code: 'timeout' });
      guest.close();
    });
  });

  const hasty = { answerMs: 300, treeMs: 300, stallMs: 300, marginMs: 100 };
  const patient = { answerMs: 600_000, treeMs: 600_000, stallMs: 600_000, marginMs: 100 };

  /** Starts the first command, which then says a byte now and then and never ends; answers nothing else. */
  const dripping = (socket: Socket) => {
    answering(frame(3, 1, u32(7)))(socket);
    let drip: NodeJS.Timeout | undefined;
    // After the greeting, and after the answer to the request.
    socket.once('data', () =>
      socket.once('data', () => {
        drip = setInterval(() => socket.write(frame(4, 1, Buffer.from('x'))), 20);
      }),
    );
    socket.on('close', () => clearInterval(drip));
  };

  const drained = async (chunks: AsyncIterable<unknown>): Promise<void> => {
    for await (const _ of chunks);
  };

  it('an agent that never ends a command does not keep it beyond its time, whatever else it says', async () => {
    await serve(dripping, async (path) => {
      const guest = await connectGuest(path, { patience: patient });
      const child = await guest.exec({ argv: ['true'], timeoutMs: 100 });
      await expect(drained(child.output)).rejects.toMatchObject({
        code: 'timeout',
        message: expect.stringContaining('did not end a command that had 0.1 s'),
      });
      await expect(child.exit).rejects.toMatchObject({ code: 'timeout' });
      guest.close();
    });
  });

  it('an agent that is silent is given up by every call, and a command without a timeout too', async () => {
    const path = '/some';
    const calls: Readonly<Record<string, (guest: Guest) => Promise<unknown>>> = {
      exec: (guest) => guest.exec({ argv: ['true'] }),
      startJob: (guest) => guest.startJob({ argv: ['true'] }),
      listJobs: (guest) => guest.listJobs(),
      readJob: (guest) => guest.readJob(1, { waitMs: 10 }),
      signalJob: (guest) => guest.signalJob(1, 9),
      openPty: (guest) => guest.openPty({ argv: ['true'], cols: 80, rows: 24 }),
      listPtys: (guest) => guest.listPtys(),
      attachPty: (guest) => guest.attachPty(1),
      resizePty: (guest) => guest.resizePty(1, 80, 24),
      signalPty: (guest) => guest.signalPty(1, 9),
      stat: (guest) => guest.stat(path),
      list: (guest) => guest.list(path, {}),
      read: (guest) => drained(guest.read(path)),
      write: (guest) => guest.write(path, once('x')),
      'write of much': (guest) => guest.write(path, once(Buffer.alloc(8 << 20))),
      writePieces: (guest) => guest.writePieces(path, 1, pieceOf('x')),
      move: (guest) => guest.move(path, '/other'),
      remove: (guest) => guest.remove(path, { recursive: true }),
      link: (guest) => guest.link(path, '/other'),
      mkdir: (guest) => guest.mkdir(path),
      watch: (guest) => drained(guest.watch(path, { recursive: true, signal: new AbortController().signal })),
      pack: (guest) => drained(guest.pack(path)),
      unpack: (guest) => guest.unpack(path, once('x')),
      dial: (guest) => guest.dial(80),
      sync: (guest) => guest.sync(),
    };
    async function* pieceOf(text: string) {
      yield { offsetBytes: 0, bytes: Buffer.from(text) };
    }
    await serve(answering(Buffer.alloc(0)), async (place) => {
      await Promise.all(
        Object.entries(calls).map(async ([name, call]) => {
          const guest = await connectGuest(place, { patience: hasty });
          await expect(call(guest), name).rejects.toMatchObject({
            code: expect.stringMatching(/^(timeout|unavailable)$/),
          });
          guest.close();
        }),
      );
    });
    await serve(answering(frame(3, 1, u32(7))), async (place) => {
      const guest = await connectGuest(place, { patience: hasty });
      const child = await guest.exec({ argv: ['true'] });
      await expect(drained(child.output)).rejects.toMatchObject({ code: 'unavailable' });
      guest.close();
    });
  });

  it('a file that stops halfway is given up, though the agent is at work on something else', async () => {
    await serve(dripping, async (path) => {
      const guest = await connectGuest(path, { patience: { ...patient, stallMs: 300 } });
      const child = await guest.exec({ argv: ['true'] });
      const reading = drained(guest.read('/some'));
      const writing = guest.write('/some', once(Buffer.alloc(8 << 20)));
      for (const work of [reading, writing])
        await expect(work).rejects.toMatchObject({
          code: 'timeout',
          message: expect.stringContaining('did not go on'),
        });
      child.close();
      guest.close();
    });
  });

  it('an agent is waited for while its sandbox is made to stand still', async () => {
    await serve(answering(Buffer.alloc(0)), async (path) => {
      const guest = await connectGuest(path, { patience: hasty });
      const letGo = guest.hold();
      const call = guest.listJobs();
      const refused = expect(call).rejects.toMatchObject({ code: 'timeout' });
      const first = await Promise.race([call.catch(() => 'given up'), sleep(2000, 'waited for')]);
      expect(first).toBe('waited for');
      letGo();
      await refused;
      guest.close();
    });
  });

  it('an agent that takes nothing is asked for no more than fits', async () => {
    const deaf = (socket: Socket) => {
      answering(Buffer.alloc(0))(socket);
      socket.once('data', () => socket.pause());
    };
    await serve(deaf, async (path) => {
      const guest = await connectGuest(path, { patience: patient });
      const argv = ['true', 'x'.repeat(3 << 20)] as const;
      const asked = Array.from({ length: 20 }, () => guest.exec({ argv }));
      const codes = Promise.all(
        asked.map((call) =>
          call.then(
            () => 'started',
            (error: CoppiceError) => error.message,
          ),
        ),
      );
      await expect(guest.stat('/')).rejects.toMatchObject({ code: 'unavailable' });
      guest.close();
      expect((await codes).filter((message) => message.includes('takes nothing')).length).toBeGreaterThan(5);
    });
  });

  it('a failure speaks of the sandbox alone, and not without end', async () => {
    for (const code of ['unauthenticated', 'rate_limited', 'corrupt', 'nonsense']) {
      const body = Buffer.concat([string(code), string(''), string('x'.repeat(60_000))]);
      await serve(answering(frame(10, 1, body)), async (path) => {
        const guest = await connectGuest(path);
        const refused = (await guest.stat('/').catch((error: CoppiceError) => error)) as CoppiceError;
        expect([refused.code, refused.message.length]).toEqual(['internal', 4096]);
        guest.close();
      });
    }
  });

  it('a failure has a hint of ours or none, whatever it calls itself', async () => {
    for (const errno of ['constructor', '__proto__', 'toString']) {
      const body = Buffer.concat([string('not_found'), string(errno), string('gone')]);
      await serve(answering(frame(10, 1, body)), async (path) => {
        const guest = await connectGuest(path);
        const refused = await guest.stat('/').catch((error: CoppiceError) => error);
        expect(refused).toMatchObject({ code: 'not_found', message: 'gone', hint: expect.any(String) });
        guest.close();
      });
    }
  });

  it('an agent that does not greet, or not in time, is unavailable', async () => {
    await serve(
      (socket) => socket.end(),
      async (path) => {
        await expect(connectGuest(path)).rejects.toMatchObject({ code: 'unavailable' });
      },
    );
    await serve(
      () => {},
      async (path) => {
        await expect(connectGuest(path, { greetTimeoutMs: 20 })).rejects.toMatchObject({
          code: 'unavailable',
        });
      },
    );
    await expect(connectGuest('/no/such/socket')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('finds the answer to its own greeting behind what an earlier session left', async () => {
    const fromAgent = new PassThrough();
    const toAgent = new PassThrough();
    const { Duplex } = await import('node:stream');
    const stream = Duplex.from({ readable: fromAgent, writable: toAgent });
    const opening = GuestLink.open(stream, { unaligned: true });
    const [greeting] = (await eventOnce(toAgent, 'data')) as [Buffer];
    fromAgent.write(
      Buffer.concat([Buffer.from('the tail of a frame'), frame(4, 9, Buffer.from('old data'))]),
    );
    const body = Buffer.concat([
      Buffer.from('COPPICE1'),
      u32(1),
      greeting.subarray(24, 32),
      u32(1),
      u32(262_144),
    ]);
    for (const byte of frame(1, 0, body)) fromAgent.write(Buffer.of(byte));
    const link = await opening;
    link.close();
    await link.closed;
  });
});
