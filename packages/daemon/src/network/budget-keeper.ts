import { destinationsOf, type GatewayEvent, mayAskModels } from '@coppice/protocol';
import type { Duty } from '../db/gateway-table.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { State } from '../db/state.ts';
import type { Log } from '../host/log.ts';
import type { Journal } from '../journal/journal.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { Pauser } from '../sandboxes/pauser.ts';
import type { GatewayFeed } from './gateway-feed.ts';
import type { GatewayProcess } from './gateway-process.ts';

export interface BudgetKeeperParts {
  readonly state: State;
  readonly journal: Journal;
  readonly log: Log;
  readonly feed: GatewayFeed;
  readonly gateway: GatewayProcess;
  readonly lifecycle: Lifecycle;
  readonly pauser: Pauser;
}

const graceS = 5;
/** For two minutes: memory cannot be kept while a connection lingers that a program has just closed. */
const tries = 60;

/**
 * Pauses or stops the sandboxes of a budget that is used up, where its owner chose that. What is to be done is written down with
 * the event that says so, and is done by the next daemon where this one dies.
 */
export class BudgetKeeper {
  readonly #parts: BudgetKeeperParts;
  #busy = Promise.resolve();
  #closed = false;

  constructor(parts: BudgetKeeperParts) {
    this.#parts = parts;
    parts.feed.onCall((event) => this.#note(event));
    parts.journal.onCommitted((events) => {
      if (events.some(({ type }) => type === 'budget.threshold')) void this.look();
    });
  }

  /** Does what is written down, one after the other. Called from time to time, for what could not be done at first. */
  look(): Promise<void> {
    this.#busy = this.#busy.then(async () => {
      if (this.#closed) return;
      for (const duty of this.#parts.state.gateway.duties()) if (!this.#closed) await this.#do(duty);
    });
    return this.#busy;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#busy;
  }

  #note(event: GatewayEvent): void {
    if (event.type !== 'budget.threshold' || event.percent !== 100 || event.action === 'refuse') return;
    const { scope, name, period, action } = event;
    const reason = `the budget of ${scope === 'home' ? 'this home' : `the ${scope} ${name}`} is used up`;
    for (const { id } of this.#sandboxesOf(event))
      this.#parts.state.gateway.addDuty({ sandboxId: id, action, reason, scope, name, period });
  }

  /** Those that could spend more of it. */
  #sandboxesOf({ scope, name }: Extract<GatewayEvent, { type: 'budget.threshold' }>): SandboxRecord[] {
    const { state } = this.#parts;
    return state.sandboxes.all().filter((record) => {
      if (scope === 'sandbox') return record.id === name;
      if (scope === 'home') return mayAskModels(destinationsOf(record.network.allow).names);
      return state.gateway.callerOf(record.id)[scope] === name;
    });
  }

  async #do(duty: Duty): Promise<void> {
    const { state, journal, log, gateway, lifecycle, pauser } = this.#parts;
    const { id, sandboxId, action, reason, scope, name, period } = duty;
    const about = { action, reason, scope, name, period };
    try {
      const isRunning = state.sandboxes.byId(sandboxId)?.state === 'running';
      if (isRunning && action === 'pause') {
        await gateway.cut(sandboxId);
        await pauser.pause(sandboxId, 'memory');
      }
      if (isRunning && action === 'stop') await lifecycle.stop(sandboxId, graceS);
      journal.commit((emit) => {
        state.gateway.removeDuty(id);
        if (isRunning) emit('budget.enforced', sandboxId, about);
      });
    } catch (error) {
      // Calls are refused in any case.
      if (state.gateway.countTry(id) < tries) return;
      log.warn({ err: error, sandbox: sandboxId }, 'a sandbox whose budget is used up could not be ended');
      journal.commit((emit) => {
        state.gateway.removeDuty(id);
        emit('budget.not_enforced', sandboxId, { ...about, error: (error as Error).message });
      });
    }
  }
}
