import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ByteStream } from '../src/index.ts';
import { type Agent, collect, startAgent } from './guest/start-agent.ts';

let agent: Agent;
let socketPath: string;
let helperPath: string;
beforeAll(async () => {
  agent = await startAgent();
  socketPath = join(agent.dir, 'door', 'run.sock');
  helperPath = join(agent.dir, 'door', 'bin', 'coppice-agent');
});
afterAll(() => agent.stop());

const program = async (): Promise<Socket> => {
  const socket = connect({ path: socketPath, allowHalfOpen: true });
  await once(socket, 'connect');
  return socket;
};

describe('the door of programs inside', () => {
  it('is not there before it is opened', async () => {
    await expect(agent.guest.accept()).rejects.toMatchObject({ code: 'wrong_state' });
    await expect(agent.guest.listen('relative', helperPath)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('carries bytes both ways, and each way ends by itself', async () => {
    await agent.guest.listen(socketPath, helperPath);
    const socket = await program();
    const stream = await agent.guest.accept();
    const sent = Buffer.alloc(2_000_000, 'abc');
    socket.end(sent);
    expect((await collect(stream.input)).equals(sent)).toBe(true);
    await stream.write(Buffer.from('heard'));
    await stream.end();
    expect((await collect(socket)).toString()).toBe('heard');
  });

  it('lets programs wait until somebody accepts, and gives each to one', async () => {
    const sockets = await Promise.all([program(), program(), program()]);
    for (const [index, socket] of sockets.entries()) socket.end(String(index));
    const heard: string[] = [];
    for (const _ of sockets) {
      const stream: ByteStream = await agent.guest.accept();
      heard.push((await collect(stream.input)).toString());
      await stream.end();
    }
    expect(heard.sort()).toEqual(['0', '1', '2']);
    for (const socket of sockets) socket.destroy();
  });

  it('can be opened again, also where somebody removed the socket, and who gave up takes no connection', async () => {
    const gaveUp = new AbortController();
    const waiting = agent.guest.until(gaveUp.signal).accept();
    gaveUp.abort(new Error('gave up'));
    await expect(waiting).rejects.toThrow('gave up');
    rmSync(socketPath);
    await agent.guest.listen(socketPath, helperPath);
    await agent.guest.listen(socketPath, helperPath);
    const accepted = agent.guest.accept();
    const socket = await program();
    const stream = await accepted;
    socket.end('x');
    expect((await collect(stream.input)).toString()).toBe('x');
    stream.close();
  });
});

describe('the helper beside it', () => {
  const env = { COPPICE_RUN_TOKEN: 'cpt_token' };
  const help = (args: readonly string[], more: object = {}) =>
    promisify(execFile)(helperPath, [...args], { env: { ...env, COPPICE_RUN_SOCKET: socketPath, ...more } });

  /** Answers one call as somebody who is no daemon would. */
  async function answerOnce(answer: string): Promise<string> {
    const stream = await agent.guest.accept();
    let request = '';
    for await (const piece of stream.input) {
      request += piece.toString();
      const length = Number(/content-length: (\d+)/i.exec(request)?.[1] ?? 0);
      if (request.includes('\r\n\r\n') && Buffer.byteLength(request.split('\r\n\r\n')[1]!) >= length) break;
    }
    if (answer !== '') await stream.write(Buffer.from(answer));
    stream.close();
    return request;
  }

  it('is this agent under a name of its own', async () => {
    expect(existsSync(helperPath)).toBe(true);
    expect((await help(['help'])).stdout).toContain('coppice-agent inbox');
  });

  it('turns its words into one call, whatever they hold', async () => {
    const answered = answerOnce('HTTP/1.1 201 Created\r\n\r\n{"seq":7}');
    const said = await help(['event', 'agent.message', 'text=a "quoted"\nline \\ with = and ü', 'ok:=true']);
    expect(said.stdout).toBe('{"seq":7}\n');
    const [head, body] = (await answered).split('\r\n\r\n');
    expect(head).toMatch(/^POST \/v1\/run\/events HTTP\/1\.1\r\n/);
    expect(head).toContain('Authorization: Bearer cpt_token');
    expect(JSON.parse(body!)).toEqual({
      type: 'agent.message',
      data: { text: 'a "quoted"\nline \\ with = and ü', ok: true },
    });
  });

  it('reads the data of an event from its standard input', async () => {
    const answered = answerOnce('HTTP/1.1 201 Created\r\n\r\n{}');
    const child = spawn(helperPath, ['event', 'agent.plan', '-'], {
      env: { ...env, COPPICE_RUN_SOCKET: socketPath },
    });
    child.stdin.end('{"entries":[]}');
    expect((await once(child, 'exit'))[0]).toBe(0);
    expect(JSON.parse((await answered).split('\r\n\r\n')[1]!)).toEqual({
      type: 'agent.plan',
      data: { entries: [] },
    });
  });

  it('says what was refused, and asks again only for what may be repeated', async () => {
    const refused = answerOnce('HTTP/1.1 429 Too Many Requests\r\n\r\n{"code":"rate_limited"}');
    await expect(help(['heartbeat'])).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining('rate_limited'),
    });
    await refused;
    const torn = [answerOnce(''), answerOnce('HTTP/1.1 200 OK\r\n\r\n{"items":[]}')];
    expect((await help(['inbox', '--after', '3', '--wait', '1'])).stdout).toBe('{"items":[]}\n');
    expect((await Promise.all(torn))[1]).toMatch(/^GET \/v1\/run\/messages\?after=3&wait_s=1 /);
    const lost = answerOnce('');
    await expect(help(['event', 'agent.message', 'text=once'])).rejects.toMatchObject({
      code: 69,
      stderr: expect.stringContaining('may have been written down'),
    });
    await lost;
  });

  it.each([
    [['nonsense']],
    [['event']],
    [['event', 'agent.message', 'no value']],
    [['event', 'agent.message', '=value']],
    [['inbox', '--after']],
    [['inbox', '--after', '1&other=2']],
    [['inbox', '--since', '1']],
    [['heartbeat', 'one', 'two']],
    [['done', '--success']],
  ])('refuses %j with how it is used', async (args) => {
    await expect(help(args)).rejects.toMatchObject({
      code: 64,
      stderr: expect.stringContaining('coppice-agent event TYPE'),
    });
  });

  it('does nothing outside of a run', async () => {
    await expect(help(['done'], { COPPICE_RUN_TOKEN: '' })).rejects.toMatchObject({
      code: 69,
      stderr: expect.stringContaining('COPPICE_RUN_TOKEN'),
    });
    await expect(help(['done'], { COPPICE_RUN_SOCKET: join(agent.dir, 'nowhere') })).rejects.toMatchObject({
      code: 69,
      stderr: expect.stringContaining('nobody answers'),
    });
  });
});
