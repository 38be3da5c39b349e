import { CoppiceError } from '@coppice/protocol/errors';

const refuse = (text: string, what: string): never => {
  throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not ${what}`);
};

export const parseWhole = (text: string): number =>
  /^\d{1,15}$/.test(text) ? Number(text) : refuse(text, 'a whole number');

export const parseNumber = (text: string): number =>
  /^\d{1,15}(\.\d+)?$/.test(text) ? Number(text) : refuse(text, 'a number');

export const parsePort = (text: string): number => {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65535 ? port : refuse(text, 'a port: 1 to 65535');
};

/** One to listen on; 0 is any that is free. */
export const parseListenPort = (text: string): number => (text === '0' ? 0 : parsePort(text));

export const collectPorts = (text: string, before: readonly number[] = []): readonly number[] => [
  ...before,
  parsePort(text),
];
