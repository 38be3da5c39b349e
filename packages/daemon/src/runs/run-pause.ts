import { CoppiceError } from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { RunLog } from './run-log.ts';

export interface RunPauseParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: RunLog;
  readonly logger: Log;
  readonly pauseSandbox: (sandboxId: string) => Promise<unknown>;
  readonly resumeSandbox: (sandboxId: string) => Promise<unknown>;
}

const asked = 'it was asked for';

/**
 * Lets nothing of a run go on. That it is to be paused is written down first, as its driver would wake the sandbox again; the event says
 * that it is. A daemon that finds a run between the two pauses it.
 */
export class RunPause {
  readonly #parts: RunPauseParts;

  constructor(parts: RunPauseParts) {
    this.#parts = parts;
  }

  async pause(run: RunRecord, reason = asked): Promise<void> {
    const { log, journal } = this.#parts;
    if (run.state !== 'running')
      throw new CoppiceError('wrong_state', `run ${run.name} is ${run.state} and cannot be paused`);
    if (run.paused) return;
    log.commit(run.id, ({ update }) => update({ paused: true }));
    journal.step('run-pause.recorded');
    try {
      await this.#settle(run.id, reason);
    } catch (error) {
      log.commit(run.id, ({ update }) => update({ paused: false }));
      throw error;
    }
  }

  async resume(run: RunRecord, reason = asked): Promise<void> {
    if (!run.paused) throw new CoppiceError('wrong_state', `run ${run.name} is not paused`);
    await this.#parts.resumeSandbox(run.sandboxId!);
    this.#parts.log.commit(run.id, ({ update, emit }) => {
      update({ paused: false });
      emit('run.resumed', 'user', { reason });
    });
  }

  /** Of one that a daemon before was about to pause. */
  async recover(run: RunRecord): Promise<void> {
    try {
      await this.#settle(run.id, asked);
    } catch (error) {
      this.#parts.logger.warn({ err: error, run: run.id }, 'a run could not be paused, and goes on');
      this.#parts.log.commit(run.id, ({ update }) => update({ paused: false }));
    }
  }

  async #settle(runId: string, reason: string): Promise<void> {
    const { log, journal, state, pauseSandbox } = this.#parts;
    const { sandboxId } = log.get(runId);
    if (state.sandboxes.byId(sandboxId!)?.state !== 'paused') await pauseSandbox(sandboxId!);
    journal.step('run-pause.paused');
    // It may have been ended, rewound or resumed meanwhile.
    if (!log.get(runId).paused || this.#isTold(runId)) return;
    log.commit(runId, ({ emit }) => emit('run.paused', 'user', { reason }));
  }

  #isTold(runId: string): boolean {
    const { log } = this.#parts;
    const seqOf = (type: 'run.paused' | 'run.resumed' | 'run.rewound') => log.last(runId, type)?.seq ?? 0;
    return seqOf('run.paused') > Math.max(seqOf('run.resumed'), seqOf('run.rewound'));
  }
}
