import { type GatewayEvent, type GatewayEventOf, hasEnded } from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Inbox } from './inbox.ts';
import type { RunLog } from './run-log.ts';

export interface GatewayEvidenceParts {
  readonly state: State;
  readonly log: RunLog;
  readonly inbox: Inbox;
  /** Messages of the run stand otherwise than before. */
  readonly onSettled: (runId: string) => void;
}

/**
 * What the gateway saw of the calls of a run: it proves which messages reached a model, and what each call took. What an agent says of
 * itself proves neither.
 */
export class GatewayEvidence {
  readonly #parts: GatewayEvidenceParts;

  constructor(parts: GatewayEvidenceParts) {
    this.#parts = parts;
  }

  hear(event: GatewayEvent): void {
    if (event.type === 'model.request') this.#requested(event);
    else if (event.type === 'model.settled') this.#settled(event);
    else if (event.type === 'model.refused') this.#refused(event);
  }

  /** Only a request with tools is one of the agent's main loop: titles and suggestions hold the same texts. */
  #requested({ run, tools, messages }: GatewayEventOf<'model.request'>): void {
    const record = tools ? this.#run(run) : undefined;
    if (record === undefined || record.adapter === 'command' || hasEnded(record.state)) return;
    const { inbox, log, onSettled } = this.#parts;
    const open = inbox.open(record.id);
    if (!open.some(({ id, via }) => messages.includes(id) || via === 'doubt')) return;
    log.commit(record.id, (entry) => inbox.settle(entry, messages));
    onSettled(record.id);
  }

  #settled({
    run,
    call,
    model,
    outcome,
    usage,
    cost_micros,
    estimated,
  }: GatewayEventOf<'model.settled'>): void {
    const record = this.#run(run);
    if (record === undefined) return;
    const input = usage.input + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h;
    this.#parts.log.commit(record.id, ({ emit }) =>
      emit('usage.call', 'gateway', {
        call,
        model,
        outcome,
        input,
        output: usage.output,
        cost_micros,
        estimated,
      }),
    );
  }

  #refused({ run, reason, message }: GatewayEventOf<'model.refused'>): void {
    const record = this.#run(run);
    if (record === undefined) return;
    this.#parts.log.commit(record.id, ({ emit }) => emit('usage.refused', 'gateway', { reason, message }));
  }

  #run(id: string | null): RunRecord | undefined {
    return id === null ? undefined : this.#parts.state.runs.byId(id);
  }
}
