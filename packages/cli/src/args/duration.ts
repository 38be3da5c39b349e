import { CoppiceError } from '@coppice/protocol/errors';

const msOf: Readonly<Record<string, number>> = {
  ms: 1,
  '': 1000,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** `30`, `30s`, `1.5m`, `2h`, `250ms`: in milliseconds. */
export const parseDurationMs = (text: string): number => {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)$/i.exec(text.trim());
  const ms = match ? Number(match[1]) * msOf[match[2]!.toLowerCase()]! : Number.NaN;
  if (!(ms > 0)) {
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not a duration`, {
      hint: 'Give seconds or a unit: 30, 90s, 10m, 2h, 1d.',
    });
  }
  return Math.round(ms);
};

export const parseDurationSeconds = (text: string): number =>
  Math.max(1, Math.round(parseDurationMs(text) / 1000));
