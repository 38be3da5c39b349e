import type { IncomingMessage, ServerResponse } from 'node:http';

const lookMs = 100;
const patienceMs = 2_000;
const mostBytes = 1024 * 1024;

/**
 * After an answer that came before the whole of its request: the caller gets the time to read it, and the rest is let go. Whoever
 * goes on sending is cut off.
 */
export const dropUnreadRest = (request: IncomingMessage, response: ServerResponse): void => {
  response.once('finish', () => {
    if (request.complete || request.socket.destroyed) return;
    const { socket } = request;
    const stopBytes = socket.bytesRead + mostBytes;
    const stopMs = performance.now() + patienceMs;
    const timer = setInterval(() => {
      const isOver = request.complete || socket.destroyed;
      if (!isOver && socket.bytesRead < stopBytes && performance.now() < stopMs) return;
      clearInterval(timer);
      if (!isOver) socket.destroy();
    }, lookMs);
  });
};
