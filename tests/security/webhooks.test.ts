import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

/** Targets that do what a server should not, beside one that is as it should be. */
describe('news of projects, with targets that are hostile', () => {
  let daemon: RunningDaemon;
  const servers: Server[] = [];
  const visits: Record<string, number> = {};
  const hidden = 'path-that-lets-in-41c7';

  const serve = async (name: string, answer: RequestListener): Promise<string> => {
    visits[name] = 0;
    const server = createServer((request, response) => {
      visits[name]! += 1;
      answer(request, response);
    });
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/${hidden}`;
  };
  const news: string[] = [];
  const take: RequestListener = async (request: IncomingMessage, response) => {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    news.push(body);
    response.end();
  };

  let silent: string;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ image: false, config: { log_level: 'debug' } });
    const elsewhere = await serve('elsewhere', (_request, response) => response.end());
    const targets = [
      await serve('silent', () => {}),
      await serve('redirecting', (_request, response) =>
        response.writeHead(307, { location: elsewhere }).end(),
      ),
      await serve('endless', (_request, response) => {
        response.writeHead(200);
        const send = () => {
          while (response.write('x'.repeat(65_536)));
          response.once('drain', send);
        };
        send();
      }),
      await serve('many headers', (_request, response) => {
        const headers = Array.from(
          { length: 500 },
          (_, n) => [`x-${n}`, 'y'.repeat(1000)] as [string, string],
        );
        response.writeHead(200, headers.flat()).end();
      }),
      await serve('good', take),
    ];
    silent = targets[0]!;
    for (const url of targets) await daemon.client.production.addNewsTarget({ url });
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  });

  const end = async (name: string): Promise<string> =>
    (await daemon.client.projects.create({ name, time_limit_s: 1 })).id;
  const arrived = (id: string): boolean => news.some((body) => body.includes(id));

  test('reach the others while one never answers, and none is led elsewhere', async () => {
    const first = await end('First');
    await eventually('the silent one is asked', () => visits.silent! > 0);
    const second = await end('Second');
    await eventually('the good one has both', () => arrived(first) && arrived(second));
    await eventually('all were asked', () =>
      Object.entries(visits).every(([name, n]) => name === 'elsewhere' || n > 0),
    );
    expect(visits.elsewhere).toBe(0);
    expect((await daemon.client.health()).status).not.toBe('failed');
  });

  test('are not kept from whoever is fine by as many as wait for one that is gone', async () => {
    for (let n = 0; n < 120; n += 1) await end(`Many ${n}`);
    const last = await end('Last');
    await eventually('the last one arrives', () => arrived(last), 120_000);
  });

  test('write the path of no target into a log, and take none that holds a password', async () => {
    const logs = readdirSync(join(daemon.home, 'log')).map((name) =>
      readFileSync(join(daemon.home, 'log', name), 'utf8'),
    );
    expect(logs.join('')).toContain('news of a project were not taken');
    expect(logs.join('')).not.toContain(hidden);
    await expect(
      daemon.client.production.addNewsTarget({ url: 'http://someone:password-9d1e@127.0.0.1/x' }),
    ).rejects.toMatchObject({ code: 'invalid_argument' });
    for (const url of ['unix:///run/some.sock', 'file:///etc/passwd', 'ftp://127.0.0.1/'])
      await expect(daemon.client.production.addNewsTarget({ url }), url).rejects.toMatchObject({
        code: 'invalid_argument',
      });
  });

  test('do not hold up the end of the daemon', async () => {
    await end('Late');
    const before = visits.silent!;
    await eventually('the silent one is asked again', () => visits.silent! > before, 120_000);
    const asked = visits.silent!;
    await daemon.stop();
    expect(visits.silent).toBe(asked);
    await daemon.restart();
    await daemon.client.production.removeNewsTarget(silent);
  });
});
