import { createSocket } from 'node:dgram';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

/**
 * Runs inside a network namespace of the lab and does there what it is told on its standard input, one JSON request a
 * line. An end of its input ends it, and with it the namespace.
 */
interface Request {
  readonly id: number;
  readonly action: 'listen' | 'connect' | 'say' | 'collect' | 'send' | 'collected';
  readonly host?: string;
  readonly port?: number;
  readonly from?: string;
  readonly connection?: number;
  readonly text?: string;
  readonly timeoutMs?: number;
}

const datagrams: string[] = [];
let arrived = (): void => {};

const connections = new Map<number, Socket>();

function firstAnswer(socket: Socket, timeoutMs: number): Promise<string> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve('silence'), timeoutMs);
    const settle = (answer: string): void => {
      clearTimeout(timer);
      resolve(answer);
    };
    socket.once('data', (data) => settle(data.toString('utf8')));
    socket.once('error', () => settle('refused'));
    socket.once('close', () => settle('closed'));
  });
}

const actions: Record<Request['action'], (request: Request) => Promise<string>> = {
  /** A server that tells whoever connects, and at each message, which address it sees. */
  listen: ({ port }) =>
    new Promise((resolve, reject) => {
      const server = createServer((socket) => {
        socket.on('error', () => socket.destroy());
        socket.write(`hello ${socket.remoteAddress}`);
        socket.on('data', () => socket.write(`hello ${socket.remoteAddress}`));
      });
      server.on('error', reject);
      server.listen(port, '0.0.0.0', () => resolve('listening'));
    }),
  connect: async ({ id, host, port, from, timeoutMs }) => {
    const socket = connect({
      host: host!,
      port: port!,
      ...(from === undefined ? {} : { localAddress: from }),
    });
    const answer = await firstAnswer(socket, timeoutMs!);
    socket.removeAllListeners('error').on('error', () => socket.destroy());
    if (answer.startsWith('hello')) connections.set(id, socket);
    else socket.destroy();
    return answer;
  },
  say: async ({ connection, timeoutMs }) => {
    const socket = connections.get(connection!)!;
    socket.write('again');
    return firstAnswer(socket, timeoutMs!);
  },
  collect: ({ port }) =>
    new Promise((resolve) => {
      const socket = createSocket('udp4');
      socket.on('message', (message) => {
        datagrams.push(message.toString('utf8'));
        arrived();
      });
      socket.bind(port, '0.0.0.0', () => resolve('listening'));
    }),
  send: ({ host, port, from, text }) =>
    new Promise((resolve, reject) => {
      const socket = createSocket('udp4');
      socket.bind(0, from, () =>
        socket.send(text!, port!, host!, (error) => {
          socket.close();
          if (error === null) resolve('sent');
          else reject(error);
        }),
      );
    }),
  /** All datagrams, once the one that is asked for is among them. */
  collected: ({ text }) =>
    new Promise((resolve) => {
      arrived = () => {
        if (datagrams.includes(text!)) resolve(datagrams.join());
      };
      arrived();
    }),
};

const lines = createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const request = JSON.parse(line) as Request;
  const answer = await actions[request.action](request).catch((error: Error) => `failed: ${error.message}`);
  process.stdout.write(`${JSON.stringify({ id: request.id, answer })}\n`);
});
lines.on('close', () => process.exit(0));
process.stdout.write('{"id":0,"answer":"ready"}\n');
