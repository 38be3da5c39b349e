import { constants } from 'node:os';
import { CoppiceError } from '@coppice/protocol/errors';

/** `9`, `KILL` or `SIGKILL`. */
export const parseSignal = (text: string): number => {
  const upper = text.toUpperCase();
  const name = upper.startsWith('SIG') ? upper : `SIG${upper}`;
  const found = /^\d+$/.test(text) ? Number(text) : constants.signals[name as NodeJS.Signals];
  if (found === undefined || found < 1 || found > 64) {
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not a signal`, {
      hint: 'Give a number or a name: 9, KILL, SIGTERM.',
    });
  }
  return found;
};
