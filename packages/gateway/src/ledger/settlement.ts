import type { GatewayEventOf } from '@coppice/protocol';
import type { Usage } from '../models/usage.ts';

/**
 * `complete`: answered whole. `cancelled`: the client went away. `cut`: the upstream broke off. `failed`: the upstream
 * answered with an error. `unreachable`: it never got the request. `lost`: the gateway died meanwhile.
 */
export type Outcome = 'complete' | 'cancelled' | 'cut' | 'failed' | 'unreachable' | 'lost';

export interface Settlement {
  readonly modelServed: string;
  readonly usage: Usage;
  readonly priceVersion: string;
  /** Null where the model has no price and tokens alone are counted. */
  readonly costMicros: number | null;
  /** The upstream did not report the final counts. */
  readonly estimated: boolean;
  readonly firstByteMs: number | null;
  readonly durationMs: number;
  readonly status: number | null;
  readonly outcome: Outcome;
}

/** What every event of a call says. */
export type OfCall = Pick<
  GatewayEventOf<'model.settled'>,
  'sandbox' | 'run' | 'agent' | 'project' | 'call' | 'attempt' | 'model' | 'upstream'
>;

export const settledEvent = (
  about: OfCall,
  { outcome, usage, costMicros, estimated, status, firstByteMs, durationMs }: Settlement,
): GatewayEventOf<'model.settled'> => ({
  type: 'model.settled',
  ...about,
  outcome,
  usage: {
    input: usage.input,
    cache_read: usage.cacheRead,
    cache_write_5m: usage.cacheWrite5m,
    cache_write_1h: usage.cacheWrite1h,
    output: usage.output,
    reasoning: usage.reasoning,
  },
  cost_micros: costMicros,
  estimated,
  status,
  first_byte_ms: firstByteMs,
  duration_ms: durationMs,
});
