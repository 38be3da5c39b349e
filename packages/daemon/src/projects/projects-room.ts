import { join } from 'node:path';
import { AgentTypes, ProductionStore, ProjectStore } from '@coppice/projects';
import type { IdSource } from '@coppice/protocol';
import type { Log } from '../host/log.ts';
import type { WebhookSender } from '../host/webhook-sender.ts';
import { AgentWork, type WorkServices } from './agent-work.ts';
import { Council } from './council.ts';
import { ExperimentRunner } from './experiment-runner.ts';
import { ExperimentService } from './experiment-service.ts';
import { Mailer, type MailSettings } from './mailer.ts';
import type { MayDie } from './may-die.ts';
import { ModelAsker } from './model-asker.ts';
import { Notifier } from './notifier.ts';
import { Production } from './production.ts';
import { ProductionBook } from './production-book.ts';
import { ProjectBook } from './project-book.ts';
import { ProjectEnding } from './project-ending.ts';
import { ProjectEvaluator } from './project-evaluator.ts';
import { ProjectFinder } from './project-finder.ts';
import { ProjectService, workspacesOf } from './project-service.ts';
import { ProjectSnapshots } from './project-snapshots.ts';
import type { Metered } from './run-book.ts';
import { RunKeeper } from './run-keeper.ts';
import { TrialJudge } from './trial-judge.ts';

export interface ProjectsRoomParts {
  /** Databases, workspaces and the operator's agent types. */
  readonly directory: string;
  readonly services: WorkServices;
  readonly log: Log;
  readonly now: () => number;
  readonly ids: IdSource;
  readonly mayDie: MayDie;
  /** A project in which nothing happened for so long seems forgotten. */
  readonly forgottenAfterS: number;
  readonly sender: WebhookSender;
  /** The server that sends mail, where there is one. */
  readonly mail: MailSettings | null;
}

const mostRuns = 8;
const pollMs = 50;

/** Everything about projects in one place: made together, tended together, closed together. */
export class ProjectsRoom {
  readonly service: ProjectService;
  readonly experiments: ExperimentService;
  readonly ending: ProjectEnding;
  readonly evaluator: ProjectEvaluator;
  readonly production: Production;
  readonly snapshots: ProjectSnapshots;
  readonly notifier: Notifier;
  readonly finder: ProjectFinder;
  readonly #store: ProjectStore;
  readonly #productionStore: ProductionStore;
  readonly #runner: ExperimentRunner;
  readonly #keepers: readonly RunKeeper[];
  readonly #held = new Set<string>();
  #tending: Promise<void> | undefined;
  #closed = false;

  constructor(parts: ProjectsRoomParts) {
    const { directory, services, log, now, ids, mayDie, forgottenAfterS, sender, mail } = parts;
    const freshRunId = (): string => ids.next('run');
    const store = new ProjectStore(join(directory, 'sandbox.db'));
    const productionStore = new ProductionStore(join(directory, 'production.db'));
    this.#store = store;
    this.#productionStore = productionStore;
    const workspaceOf = workspacesOf(join(directory, 'projects'));
    const work = new AgentWork(services);
    const models = new ModelAsker(services);
    const judge = new TrialJudge(services, models);
    this.finder = new ProjectFinder(store);
    this.notifier = new Notifier(store, log, now, sender, mail === null ? undefined : new Mailer(mail));
    const common = {
      store,
      services,
      work,
      finder: this.finder,
      notifier: this.notifier,
      log,
      now,
      mayDie,
      workspaceOf,
      freshRunId,
    };
    this.#runner = new ExperimentRunner(common);
    const types = new AgentTypes(join(directory, 'agent-types'));
    const tendSoon = (): void => this.#tendSoon();
    this.evaluator = new ProjectEvaluator(store, new Council(models, store, now));
    this.production = new Production({ ...common, production: productionStore, evaluator: this.evaluator });
    this.experiments = new ExperimentService({ ...common, types, runner: this.#runner, tendSoon });
    this.ending = new ProjectEnding({
      ...common,
      production: productionStore,
      tendSoon,
      quiet: (projectId) => this.#quiet(projectId),
      forgetSnapshots: (projectId) => this.snapshots.forget(projectId),
    });
    this.service = new ProjectService({
      ...common,
      types,
      ending: this.ending,
      tendSoon,
      forgottenMs: forgottenAfterS * 1000,
    });
    this.snapshots = new ProjectSnapshots({
      ...common,
      directory: join(directory, 'snapshots'),
      still: (projectId, act) => this.#still(projectId, act),
    });
    const metered = async (runId: string): Promise<Metered> => {
      const { total } = await services.gateway.costs({ by: '', run: runId }, { kind: 'admin' });
      const { cost_micros: micros, input, cache_read, cache_write5m, cache_write1h, output, calls } = total;
      return { micros, tokens: input + cache_read + cache_write5m + cache_write1h + output, calls };
    };
    const keeping = { work, log, now, mayDie, metered, mostAtOnce: mostRuns };
    const projects = new ProjectBook({
      store,
      experiments: this.#runner,
      judge,
      workspaceOf,
      now,
      isHeld: (projectId) => this.#held.has(projectId),
      freshRunId,
    });
    const production = new ProductionBook({
      store: productionStore,
      production: this.production,
      judge,
      now,
    });
    this.#keepers = [
      new RunKeeper({ ...keeping, book: projects }),
      new RunKeeper({ ...keeping, book: production }),
    ];
    services.runs.beforeStarted(async ({ id }, sandboxId) => {
      for (const keeper of this.#keepers) if (await keeper.prepare(id, sandboxId)) return;
    });
    this.production.settle();
  }

  /** Looked at again and again; what takes long goes on by itself. */
  async tend(): Promise<void> {
    if (this.#closed) return;
    this.#tending ??= this.#tend().finally(() => {
      this.#tending = undefined;
    });
    await this.#tending;
  }

  async prune(): Promise<void> {
    await this.ending.prune();
    await this.#runner.sweep();
  }

  /** Begins nothing any more: the services that it stands on are about to close. */
  rest(): void {
    this.#closed = true;
    for (const keeper of this.#keepers) keeper.rest();
  }

  async close(): Promise<void> {
    this.rest();
    await this.notifier.close();
    await this.#tending?.catch(() => {});
    await Promise.all(this.#keepers.map((keeper) => keeper.close()));
    this.#store.close();
    this.#productionStore.close();
  }

  async #tend(): Promise<void> {
    await this.snapshots.settle();
    await this.service.tend();
    this.production.tend();
    await this.#runner.tend();
    for (const keeper of this.#keepers) keeper.tend();
  }

  #tendSoon(): void {
    setImmediate(() => void this.tend().catch(() => {}));
  }

  /** Until no run of it is open and no sandbox of it is left. */
  async #quiet(projectId: string): Promise<void> {
    for (;;) {
      const open = this.#store.runs
        .all({ projectId })
        .filter(({ state, sandboxId }) => state !== 'ended' || sandboxId !== null);
      if (open.length === 0) return;
      await this.tend();
      await Promise.all(open.map(({ id }) => this.#keepers[0]!.settled(id)));
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }

  async #still<T>(projectId: string, act: () => Promise<T>): Promise<T> {
    this.#held.add(projectId);
    try {
      const open = this.#store.runs.all({ projectId });
      await Promise.all(open.map(({ id }) => this.#keepers[0]!.settled(id)));
      return await act();
    } finally {
      this.#held.delete(projectId);
    }
  }
}
