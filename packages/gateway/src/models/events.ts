import type { Outcome } from '../ledger/ledger.ts';
import type { Caller } from './caller.ts';
import type { DialectName } from './dialect.ts';
import type { Usage } from './usage.ts';

interface OfCall {
  readonly call: string;
  readonly caller: Caller;
  readonly model: string;
  readonly upstream: string;
}

/** What the gateway tells the daemon while it works. None of it holds text of requests, answers or keys. */
export type ModelEvent =
  | ({ readonly type: 'model.request'; readonly dialect: DialectName } & OfCall)
  | ({ readonly type: 'model.first_byte'; readonly afterMs: number } & OfCall)
  | ({
      readonly type: 'model.settled';
      readonly outcome: Outcome;
      readonly usage: Usage;
      readonly costMicros: number | null;
      readonly estimated: boolean;
    } & OfCall)
  | {
      readonly type: 'recording.failed';
      readonly call: string;
      readonly caller: Caller;
      readonly message: string;
    }
  | {
      readonly type: 'model.refused';
      readonly caller: Caller;
      readonly reason: string;
      readonly message: string;
    };
