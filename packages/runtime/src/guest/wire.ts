import { CoppiceError } from '@coppice/protocol';

/** The bytes on the wire; docs/guest-protocol.md says what they mean, native/agent/wire.h is the other end. */
export const wireMagic = 'COPPICE1';
export const wireVersion = 1;
export const frameHeaderBytes = 12;
export const frameMaxPayload = 65_536;
export const requestMaxBytes = 4 << 20;

export const frameType = {
  hello: 1,
  request: 2,
  reply: 3,
  data: 4,
  end: 5,
  credit: 6,
  signal: 7,
  cancel: 8,
  done: 9,
  error: 10,
} as const;

export const requestMore = 1;

export const operation = {
  exec: 1,
  jobStart: 2,
  jobList: 3,
  jobRead: 4,
  jobSignal: 5,
  ptyOpen: 6,
  ptyList: 7,
  ptyAttach: 8,
  ptyResize: 9,
  ptySignal: 10,
  stat: 11,
  list: 12,
  read: 13,
  write: 14,
  move: 15,
  remove: 16,
  mkdir: 17,
  watch: 18,
  pack: 19,
  unpack: 20,
  dial: 21,
  hostname: 22,
  fork: 23,
  sync: 24,
  shutdown: 25,
  link: 26,
  attributes: 27,
  writeStretches: 28,
  jobInput: 29,
  jobSweep: 30,
  listen: 31,
  accept: 32,
} as const;

export type Operation = (typeof operation)[keyof typeof operation];

/** What the agent sent makes no sense: the link is closed, as nothing after it can be trusted. */
export const protocolError = (what: string): CoppiceError =>
  new CoppiceError('unavailable', `the agent of the sandbox broke the guest protocol: ${what}`, {
    hint: 'Stop and start the sandbox.',
    details: { reason: 'protocol' },
  });

export const encodeHeader = (
  target: Buffer,
  type: number,
  flags: number,
  channel: number,
  length: number,
): void => {
  target.writeUInt32LE(length, 0);
  target[4] = type;
  target[5] = flags;
  target[6] = 0;
  target[7] = 0;
  target.writeUInt32LE(channel, 8);
};
