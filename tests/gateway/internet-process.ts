import { createSocket } from 'node:dgram';
import { createServer as createHttp } from 'node:http';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { createServer as createTls } from 'node:tls';
import { decode, encode } from 'dns-packet';

/**
 * An internet in a network namespace: a name server and servers that say what they were asked for. What it is told on its standard
 * input is the zone; it answers a line of JSON with all names that were asked of it since. An end of its input ends it.
 */
const { key, cert } = JSON.parse(process.argv[2] ?? '') as { key: string; cert: string };
let zone: Record<string, string> = {};
let asked: string[] = [];

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

const sizeOf = (path: string): number => Number(/\/(\d+)$/.exec(path)?.[1] ?? 0);
const page = createHttp((request, response) => {
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
const secure = createTls({ key, cert }, (socket) => {
  socket.on('error', () => {});
  socket.once('data', () => {
    const text = `tls ${socket.servername}`;
    socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`);
  });
});
secure.listen(443);
secure.on('tlsClientError', () => {});
/** Speaks first, as SSH and databases do. */
createServer((socket) => {
  socket.on('error', () => {});
  socket.write('welcome\n');
  socket.on('data', (data) => socket.write(`echo ${data}`));
}).listen(2222);
/** The web at another port. */
createHttp((request, response) => response.end(`http ${request.headers.host}`)).listen(8080);

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line !== '') zone = JSON.parse(line) as Record<string, string>;
    process.stdout.write(`${JSON.stringify(asked)}\n`);
    asked = [];
  })
  .on('close', () => process.exit(0));
