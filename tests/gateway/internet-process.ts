import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { readFileSync, statSync } from 'node:fs';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { decode, encode } from 'dns-packet';

/**
 * An internet in a network namespace: a name server and servers that say what they were asked for. What it is told on its standard
 * input is the zone; it answers a line of JSON with all names that were asked of it since. An end of its input ends it.
 */
const { key, cert } = JSON.parse(process.argv[2] ?? '') as { key: string; cert: string };
let zone: Record<string, string> = {};
let asked: string[] = [];
/** Every request to a server of the web, as its server understood it. */
let hits: string[] = [];
const hit = ({ headers, method, url }: IncomingMessage): void => {
  hits.push(`${headers.host} ${method} ${url}`);
};

const names = createSocket('udp4', (message, { address, port }) => {
  const query = decode(message);
  const question = query.questions?.[0];
  if (question === undefined) return;
  asked.push(question.name);
  const data = question.type === 'A' ? zone[question.name.toLowerCase()] : undefined;
  const known = Object.hasOwn(zone, question.name.toLowerCase());
  names.send(
    encode({
      type: 'response',
      id: query.id ?? 0,
      flags: known ? 0 : 3,
      questions: [question],
      answers: data === undefined ? [] : [{ type: 'A', name: question.name, ttl: 1, data }],
    }),
    port,
    address,
  );
});
names.bind(53);

createSocket('udp4', (message) => hits.push(`udp ${message.toString('latin1')}`)).bind(443);

const sizeOf = (path: string): number => Number(/\/(\d+)$/.exec(path)?.[1] ?? 0);
const page = createHttp((request, response) => {
  hit(request);
  const size = sizeOf(request.url ?? '');
  if (size > 0) return void response.end(Buffer.alloc(size, 'x'));
  let body = 0;
  request.on('data', (chunk: Buffer) => {
    body += chunk.length;
  });
  request.on('end', () => response.end(`http ${request.headers.host} ${request.method} ${body}`));
});
page.listen(80);
page.on('upgrade', (_request, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n');
  socket.pipe(socket);
});
/** Says what it was asked, with every header, as hosts of secrets may. */
const secure = createHttps({ key, cert }, (request, response) => {
  hit(request);
  if (request.url?.startsWith('/git/')) return serveGit(request, response);
  const { servername } = request.socket as TLSSocket;
  const path = join(process.env.WEB_FILES ?? '/nonexistent', `${servername}`, `${request.url}`);
  const file = [path, `${path}.json`, join(path, 'index.html')].find((each) =>
    statSync(each, { throwIfNoEntry: false })?.isFile(),
  );
  if (file !== undefined) {
    return void response.writeHead(200, { 'content-type': 'text/html' }).end(readFileSync(file));
  }
  const url = request.url ?? '/';
  const echo = JSON.stringify({ method: request.method, url, headers: request.headers });
  request.resume();
  if (url.startsWith('/redirect'))
    return void response.writeHead(302, { location: 'https://other.example.com/echo' }).end();
  if (url.startsWith('/gzip'))
    return void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(echo));
  if (url.startsWith('/zstd')) return void response.writeHead(200, { 'content-encoding': 'zstd' }).end(echo);
  if (url.startsWith('/base64'))
    return void response.end(Buffer.from(`${'x'.repeat(Number(url.at(-1)))}${echo}`).toString('base64'));
  if (url.startsWith('/name')) {
    const said = request.headers.authorization?.replace(/^Bearer /, '') ?? 'nothing';
    return void response.writeHead(200, { [`x-${said}`]: 'named' }).end('name');
  }
  if (url.startsWith('/head'))
    return void response.writeHead(200, { 'x-echo': request.headers.authorization ?? '' }).end('head');
  if (url.startsWith('/split')) {
    for (const letter of echo) response.write(letter);
    return void response.end();
  }
  if (!url.startsWith('/echo') && !url.startsWith('/api')) return void response.end(`tls ${servername}`);
  response.end(echo);
});
secure.listen(443);
secure.on('tlsClientError', () => {});
/** Speaks first, as SSH and databases do. */
createServer((socket) => {
  socket.on('error', () => {});
  socket.write('welcome\n');
  socket.on('data', (data) => socket.write(`echo ${data}`));
}).listen(2222);
/** Sends as many bytes as a line says. */
createServer((socket) => {
  const chunk = Buffer.alloc(1 << 20, 'x');
  socket.on('error', () => {});
  socket.once('data', (line) => {
    let left = Number(line.toString());
    const more = (): void => {
      while (left > 0) {
        const size = Math.min(left, chunk.length);
        left -= size;
        if (!socket.write(chunk.subarray(0, size))) return void socket.once('drain', more);
      }
      socket.end();
    };
    more();
  });
}).listen(9000);
/** The web at another port. */
createHttp((request, response) => {
  hit(request);
  response.end(`http ${request.headers.host}`);
}).listen(8080);

/** A server of the web that knows of no upgrades and keeps its connections, as many do. */
createServer((socket) => {
  let text = '';
  socket.on('error', () => {});
  socket.on('data', (data) => {
    const heads = `${text}${data}`.split('\r\n\r\n');
    text = heads.pop() ?? '';
    for (const head of heads) {
      const [method, path] = head.split(' ');
      hits.push(`${/^host: (.*)$/im.exec(head)?.[1]} ${method} ${path}`);
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n');
    }
  });
}).listen(8081);

/** Git's own server, below the directory that the environment names; it wants the password `git-token-1234`. */
function serveGit(request: IncomingMessage, response: ServerResponse): void {
  const wanted = `Basic ${Buffer.from('bot:git-token-1234').toString('base64')}`;
  if (request.headers.authorization !== wanted) {
    response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
    return;
  }
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const backend = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: process.env.GIT_REPOSITORIES,
      GIT_HTTP_EXPORT_ALL: '1',
      REMOTE_USER: 'bot',
      PATH_INFO: path.slice('/git'.length),
      QUERY_STRING: query,
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  request.pipe(backend.stdin);
  backend.stdin.on('error', () => {});
  const chunks: Buffer[] = [];
  backend.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  backend.once('close', () => {
    const answer = Buffer.concat(chunks);
    const at = answer.indexOf('\r\n\r\n');
    const lines = answer.toString('latin1', 0, at).split('\r\n');
    const headers = Object.fromEntries(lines.map((line) => line.split(': ', 2)));
    response.writeHead(Number.parseInt(headers.Status ?? '200', 10), headers).end(answer.subarray(at + 4));
  });
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'hits') {
      process.stdout.write(`${JSON.stringify(hits)}\n`);
      hits = [];
      return;
    }
    if (line !== '') zone = JSON.parse(line) as Record<string, string>;
    process.stdout.write(`${JSON.stringify(asked)}\n`);
    asked = [];
  })
  .on('close', () => process.exit(0));
