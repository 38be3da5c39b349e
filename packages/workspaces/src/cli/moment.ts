import { CoppiceError } from '@coppice/protocol/errors';

const unitMs: Readonly<Record<string, number>> = {
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** `2h`, `3d`: so long ago. Else a date, or a date and a time, where the reader is. In milliseconds since 1970. */
export const parseMoment = (text: string, nowMs: number): number => {
  const [, count, unit = ''] = /^(\d{1,6})([mhdw])$/.exec(text) ?? [];
  if (count !== undefined) return nowMs - Number(count) * (unitMs[unit] ?? 0);
  // A date alone would be taken for one in Greenwich.
  const dated = /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00` : text.replace(' ', 'T');
  const found = /^\d{4}-\d{2}-\d{2}T/.test(dated) ? Date.parse(dated) : Number.NaN;
  if (!Number.isNaN(found)) return found;
  throw new CoppiceError('invalid_argument', `not a time: ${JSON.stringify(text)}`, {
    hint: 'Use 30m, 2h, 3d or 1w for so long ago, or a date such as 2026-03-01 or 2026-03-01T09:30.',
  });
};
