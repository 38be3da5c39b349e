import { CoppiceError } from '@coppice/protocol/errors';

const refuse = (text: string, what: string): never => {
  throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not ${what}`);
};

export const parseWhole = (text: string): number =>
  /^\d{1,15}$/.test(text) ? Number(text) : refuse(text, 'a whole number');

export const parseNumber = (text: string): number =>
  /^\d{1,15}(\.\d+)?$/.test(text) ? Number(text) : refuse(text, 'a number');

const portFrom =
  (least: 0 | 1) =>
  (text: string): number => {
    const port = /^\d{1,5}$/.test(text) ? Number(text) : -1;
    return port >= least && port <= 65535 ? port : refuse(text, `a port: ${least} to 65535`);
  };

export const parsePort = portFrom(1);

/** One to listen on; 0 is any that is free. */
export const parseListenPort = portFrom(0);

export const collectPorts = (text: string, before: readonly number[] = []): readonly number[] => [
  ...before,
  parsePort(text),
];
