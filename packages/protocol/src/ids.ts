import { randomBytes } from 'node:crypto';
import { z } from 'zod';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

const base32 = (value: bigint, length: number): string => {
  let rest = value;
  let text = '';
  for (let index = 0; index < length; index += 1) {
    text = alphabet[Number(rest & 31n)] + text;
    rest >>= 5n;
  }
  return text;
};

export const idKinds = {
  sandbox: 'sb',
  snapshot: 'sn',
  image: 'img',
  token: 'tok',
  run: 'run',
  message: 'msg',
  repository: 'rp',
  webhook: 'wh',
} as const;
export type IdKind = keyof typeof idKinds;

/** Makes ids that sort by the time they were made, also within one millisecond and one process. */
export class IdSource {
  readonly #now: () => number;
  #lastMs = -1;
  #lastRandom = 0n;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  next(kind: IdKind): string {
    const nowMs = Math.max(this.#now(), this.#lastMs);
    this.#lastRandom =
      nowMs === this.#lastMs ? this.#lastRandom + 1n : BigInt(`0x${randomBytes(10).toString('hex')}`) >> 1n;
    this.#lastMs = nowMs;
    return `${idKinds[kind]}_${base32(BigInt(nowMs), 10)}${base32(this.#lastRandom, 16)}`;
  }
}

/** When an id was made, as it says itself; undefined for what is no id. */
export const madeAtMs = (id: string): number | undefined => {
  const digits = /^[a-z]{2,3}_([0-9a-hjkmnp-tv-z]{10})[0-9a-hjkmnp-tv-z]{16}$/.exec(id)?.[1];
  if (digits === undefined) return undefined;
  return [...digits].reduce((value, digit) => value * 32 + alphabet.indexOf(digit), 0);
};

const id = (kind: IdKind) =>
  z
    .string()
    .regex(new RegExp(`^${idKinds[kind]}_[0-9a-hjkmnp-tv-z]{26}$`), `must be an id like ${idKinds[kind]}_…`);

export const sandboxIdSchema = id('sandbox');
export const snapshotIdSchema = id('snapshot');
export const webhookIdSchema = id('webhook');
export const imageIdSchema = id('image');
export const tokenIdSchema = id('token');
export const runIdSchema = id('run');
export const messageIdSchema = id('message');

/** Names people give: they stand in paths, URLs and tables, so they start with a letter or digit and hold no slash. */
export const nameSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/,
    'must be 1 to 63 letters, digits, `_`, `.` or `-`, starting with a letter or digit',
  )
  .refine(
    (name) => !/^(sb|sn|img|tok|run|msg|rp)_[0-9a-hjkmnp-tv-z]{26}$/.test(name),
    'must not look like an id',
  );

/** An id or a name. What it refers to is looked up; what cannot be either is refused at the door. */
export const refSchema = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/, 'must be an id or a name');

/** The project of whatever names none. */
export const defaultProject = 'default';
