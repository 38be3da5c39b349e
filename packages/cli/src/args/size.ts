import { CoppiceError } from '@coppice/protocol/errors';

const factors: Readonly<Record<string, number>> = { '': 1, m: 1, g: 1024, t: 1024 * 1024 };

/** `512`, `512m`, `2g`: in MiB. */
export const parseMegabytes = (text: string): number => {
  const match = /^(\d+(?:\.\d+)?)\s*([mgt]?)(?:i?b)?$/i.exec(text.trim());
  const megabytes = match ? Number(match[1]) * (factors[match[2]!.toLowerCase()] ?? Number.NaN) : Number.NaN;
  if (!Number.isFinite(megabytes) || megabytes <= 0) {
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not a size`, {
      hint: 'Give MiB or a unit: 512, 512m, 2g.',
    });
  }
  return Math.round(megabytes);
};
