import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GatewayEvent } from '@coppice/protocol';
import { afterEach, describe, expect, test } from 'vitest';
import {
  type LedgerDatabase,
  messagesIn,
  Outbox,
  openLedgerFile,
  ScriptedUpstream,
  Sightings,
} from '../src/index.ts';
import { startGateway } from './running-gateway.ts';

const marker = (id: string): string => `<coppice-message id="${id}">hello</coppice-message>`;

describe('messages in a request', () => {
  const found = (text: string): string[] => messagesIn(Buffer.from(text));

  test('are found as often as their text was put into other text, each once, in their order', () => {
    const once = JSON.stringify({ content: marker('b') });
    const twice = JSON.stringify({ content: JSON.stringify({ output: marker('a') }) });
    const thrice = JSON.stringify({ content: twice });
    expect(found(once + twice + thrice + once)).toEqual(['b', 'a']);
    expect(found('"\\u003ccoppice-message id=\\"x-1\\"\\u003e"')).toEqual(['x-1']);
    expect(found("<coppice-message id='q'>")).toEqual(['q']);
  });

  test('are no others than whole markers with an id', () => {
    expect(found('coppice-message id="a"')).toEqual([]);
    expect(found('<coppice-message id="">')).toEqual([]);
    expect(found('<coppice-message id="a b">')).toEqual([]);
    expect(found('<coppice-message id="a')).toEqual([]);
    expect(found(`<coppice-message id="${'a'.repeat(65)}">`)).toEqual([]);
    expect(found('<coppice-message id=')).toEqual([]);
    expect(found('<coppice-message id="../../x">')).toEqual([]);
  });

  test('are looked for in one pass, however many there are, and the newest are kept', () => {
    const many = Array.from({ length: 20_000 }, (_, index) => marker(`m${index}`)).join('');
    const ids = found(many);
    expect(ids).toHaveLength(500);
    expect(ids.at(-1)).toBe('m19999');
  });
});

const tool = { name: 'bash', input_schema: { type: 'object' } };
const asks = {
  anthropic: ['/v1/messages', { max_tokens: 10, messages: [{ role: 'user', content: 'TEXT' }] }, [tool]],
  'openai-responses': ['/v1/responses', { input: 'TEXT' }, [{ type: 'function', name: 'bash' }]],
  'openai-chat': [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'TEXT' }] },
    [{ type: 'function', function: { name: 'bash' } }],
  ],
  gemini: [
    '/v1beta/models/m:generateContent',
    { contents: [{ role: 'user', parts: [{ text: 'TEXT' }] }] },
    [{ functionDeclarations: [{ name: 'bash' }] }],
  ],
} as const;

describe.each(Object.entries(asks))('a request of %s', (dialect, [path, body, tools]) => {
  test('with tools tells which messages it carries, and which of them are new', async () => {
    await using upstream = new ScriptedUpstream({ steps: [{ text: 'ok' }] });
    const url = await upstream.listen();
    await using gateway = await startGateway({
      config: {
        upstreams: [
          { name: 'a', kind: 'anthropic', url },
          { name: 'o', kind: 'openai', url },
          { name: 'g', kind: 'google', url },
        ],
      },
      unknown: 'count',
    });
    const ask = async (text: string, more: object, sandbox = 'dev'): Promise<void> => {
      const said = JSON.parse(
        JSON.stringify({ model: 'm', ...body, ...more }).replace('TEXT', '@'),
      ) as object;
      const whole = JSON.stringify(said).replace('"@"', JSON.stringify(text));
      const caller = { sandbox, run: 'r1', agent: 'claude', project: 'web' };
      const headers = { 'x-test-caller': JSON.stringify(caller) };
      const answer = await fetch(gateway.url + path, { method: 'POST', body: whole, headers });
      expect(answer.status, await answer.text()).toBe(200);
    };
    await ask(marker('one'), {});
    await ask(marker('one'), { tools: [] });
    await ask(marker('one'), { tools });
    await ask(marker('two') + marker('one'), { tools });
    await ask(marker('two'), { tools }, 'other');
    const requests = gateway.events.filter((event) => event.type === 'model.request');
    expect(requests).toMatchObject([
      { tools: false, messages: [], new_messages: [] },
      { tools: false, messages: [], new_messages: [] },
      { tools: true, messages: ['one'], new_messages: ['one'] },
      { tools: true, messages: ['two', 'one'], new_messages: ['two'] },
      { tools: true, messages: ['two'], new_messages: ['two'], sandbox: 'other' },
    ]);
    expect(requests[0]).toMatchObject({ dialect, run: 'r1', agent: 'claude', project: 'web', attempt: 1 });
    expect(gateway.events.map((event) => event.type).slice(0, 3)).toEqual([
      'model.request',
      'model.first_byte',
      'model.settled',
    ]);
  });
});

describe('the outbox', () => {
  const directories: string[] = [];
  const open = (file = join(mkdtempSync(join(tmpdir(), 'coppice-outbox-')), 'ledger.db')) => {
    directories.push(join(file, '..'));
    return { file, database: openLedgerFile(file) };
  };
  afterEach(() => {
    for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
  });
  const event = (message: string): GatewayEvent => ({
    type: 'recording.failed',
    sandbox: message,
    call: 'c',
    message,
  });
  const read = (outbox: Outbox, epoch: string, after: number): string[] =>
    outbox.page({ epoch, after }, 10).events.map(({ event: each }) => each.sandbox);
  /** A socket that somebody waits at. */
  const waiting = async (): Promise<{ socket: Socket; close: () => void }> => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const socket = connect((server.address() as { port: number }).port, '127.0.0.1');
    const close = (): void => {
      socket.destroy();
      server.close();
    };
    return { socket, close };
  };

  test('goes on from a position after it was opened again', () => {
    const { file, database } = open();
    const outbox = new Outbox(database);
    for (const name of ['a', 'b', 'c']) outbox.post(event(name));
    expect(read(outbox, outbox.epoch, 0)).toEqual(['a', 'b', 'c']);
    database.close();
    const again = openLedgerFile(file);
    const next = new Outbox(again);
    expect(next.epoch).toBe(outbox.epoch);
    next.post(event('d'));
    expect(read(next, outbox.epoch, 2)).toEqual(['c', 'd']);
    again.close();
  });

  test('takes a position in another outbox for none', () => {
    const { database } = open();
    const outbox = new Outbox(database);
    outbox.post(event('a'));
    expect(read(outbox, 'another', 500)).toEqual(['a']);
    database.close();
  });

  test('has an event only together with what it tells of', () => {
    const { database } = open();
    const outbox = new Outbox(database);
    const failing = database.transaction(() => {
      outbox.post(event('a'));
      throw new Error('not written');
    });
    expect(() => failing()).toThrow('not written');
    expect(read(outbox, outbox.epoch, 0)).toEqual([]);
    database.close();
  });

  test('answers whoever waits as soon as there is something, and at the end of the time', async () => {
    const { database } = open();
    const outbox = new Outbox(database);
    const { socket, close } = await waiting();
    const position = { epoch: outbox.epoch, after: 0 };
    expect((await outbox.next(position, 10, 1, socket)).events).toEqual([]);
    const asked = outbox.next(position, 10, 30_000, socket);
    outbox.post(event('a'));
    expect((await asked).events).toHaveLength(1);
    close();
    database.close();
  });

  test('is not filled by the refusals of one sandbox', () => {
    const { database } = open();
    const outbox = new Outbox(database);
    const refused = (sandbox: string, name: string): GatewayEvent => ({
      type: 'connection.refused',
      ...{ sandbox, name, port: 443, reason: 'not allowed' },
    });
    for (let index = 0; index < 1_000; index += 1) outbox.post(refused('loud', `n${index}.example`));
    outbox.post(refused('quiet', 'one.example'));
    const all = outbox
      .page({ epoch: outbox.epoch, after: 0 }, 1_000)
      .events.map((each) => each.event.sandbox);
    expect(all.filter((each) => each === 'loud').length).toBeLessThan(70);
    expect(all.at(-1)).toBe('quiet');
    database.close();
  });

  test('remembers which messages were seen, also of one that writes markers without end', () => {
    const { database }: { database: LedgerDatabase } = open();
    const sightings = new Sightings(database);
    expect(sightings.add('s', ['a', 'b'])).toEqual(['a', 'b']);
    expect(new Sightings(database).add('s', ['b', 'c'])).toEqual(['c']);
    expect(sightings.add('other', ['a'])).toEqual(['a']);
    for (let page = 0; page < 50; page += 1)
      sightings.add(
        's',
        Array.from({ length: 500 }, (_, index) => `${page}.${index}`),
      );
    const { count } = database
      .prepare<[], { count: number }>("SELECT count(*) AS count FROM sightings WHERE sandbox = 's'")
      .get()!;
    expect(count).toBeLessThanOrEqual(20_500);
    database.close();
  });
});
