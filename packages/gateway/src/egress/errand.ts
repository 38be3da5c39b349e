import type { EgressPolicy } from './policies.ts';

/** Where a connection wants to go. */
export interface Errand {
  readonly policy: EgressPolicy;
  readonly name: string;
  readonly port: number;
  readonly beganMs: number;
}

/** Text from inside a sandbox, for people and logs. */
export const printable = (text: string): string =>
  [...text.slice(0, 100)].map((c) => (c >= '!' && c <= '~' ? c : '?')).join('');
