import type { Caller as Owner } from '@coppice/protocol';

/** Who calls. The gateway knows it by network address and from the daemon, never by what a request says. */
export interface Caller extends Owner {
  readonly sandbox: string;
}
