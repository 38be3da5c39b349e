import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Experiment, ProductionAgent } from '@coppice/protocol';
import { StagedDemo } from '../ui/staged-demo.ts';

const pollMs = 100;
/** A task whose answer is known, solved in three ways. */
const scripts = {
  careless: 'tail -1 .agent/case > answer',
  slow: 'sleep 0.2; head -1 .agent/case > answer',
  sorted: 'sort -n .agent/case | tail -1 > answer',
} as const;
const earning = `${scripts.sorted}; printf '{"cost_usd":0.5,"revenue_usd":3}' > report.json`;
const cases = Array.from({ length: 8 }, (_none, index) => ({
  id: `case-${index + 1}`,
  input: [3, 40 + index, 7].join('\n'),
  expected: String(40 + index),
}));

/** Three variants of a scripted agent are compared, the winner is promoted, made worse, and rolled back by the guard. */
export class ProjectsDemo extends StagedDemo {
  readonly #name = `Demo ${randomBytes(3).toString('hex')}`;
  readonly #production = new Set<string>();
  #project: string | undefined;

  protected async show(): Promise<void> {
    const { projects, production } = this.cli.coppice;
    const id = await this.step('create a project', async () => {
      this.#project = (
        await projects.create({ name: this.#name, description: 'coppice demo projects', cap_usd: 20 })
      ).id;
      return this.#project;
    });
    const experiment = await this.step(
      'try three variants on eight cases, each trial a fork of one snapshot',
      () => this.#experiment(id),
    );
    for (const { name, passed, n, gate } of experiment.variants)
      this.say(
        `     ${name}: ${passed} of ${n} cases${gate === null ? ' (the baseline)' : `, ${gate.said}`}`,
      );
    await this.step('deploy the winner, and let it earn', async () => {
      await projects.deploy(id, { type: 'scripted', name: this.#name, config: { script: earning } });
      await this.#until(async () => (await projects.get(id)).metrics.revenue_usd > 0);
    });
    const evaluation = await this.step('evaluate', () => projects.evaluate(id));
    this.say(`     ${evaluation.recommendation} (ROI: ${evaluation.metrics.roi}%)`);
    const agent = await this.step('promote it, by the digest of what was read', async () => {
      const promoted = (await projects.promote(id, evaluation.digest)).agents[0]!;
      this.#production.add(promoted.id);
      return promoted;
    });
    await this.step('canary: three runs that go well', () => this.#turns(agent, 'live'));
    const worse = await this.step(
      'make it worse: a new configuration runs beside it, in the shadow',
      async () => {
        const changed = await production.change(agent.id, { config: { script: 'exit 1' } });
        this.#production.add(changed.id);
        return changed;
      },
    );
    const ended = await this.step('the guard takes it back by itself', () =>
      this.#turns(worse, 'rolled-back'),
    );
    this.say(`     ${ended.rollback?.reason}`);
    this.say(`     ${agent.id} still works; a snapshot for the post-mortem is ${ended.rollback?.snapshot}`);
  }

  async #experiment(id: string): Promise<Experiment> {
    const { projects } = this.cli.coppice;
    const started = await projects.startExperiment(id, {
      name: 'which way is right',
      hypothesis: 'sorting finds the largest number',
      type: 'scripted',
      variants: Object.entries(scripts).map(([name, script]) => ({ name, config: { script } })),
      cases,
      evaluator: { kind: 'script', script: 'test "$(cat answer)" = "$COPPICE_EXPECTED"' },
      stop: 'fixed',
      parallel: 6,
    });
    await this.#until(async () => (await projects.experiment(id, started.id)).state !== 'running');
    return projects.experiment(id, started.id);
  }

  /** Runs the lane until the agent is in that stage. */
  async #turns({ id, lane }: ProductionAgent, stage: ProductionAgent['stage']): Promise<ProductionAgent> {
    const { production } = this.cli.coppice;
    const all = async () => (await production.list()).filter((agent) => agent.lane === lane);
    const runs = async () => (await all()).reduce((sum, agent) => sum + agent.runs, 0);
    for (let round = 0; round < 20; round += 1) {
      const found = (await all()).find((agent) => agent.id === id)!;
      if (found.stage === stage) return found;
      const before = await runs();
      const begun = await production.run([...this.#production][0]!);
      await this.#until(async () => (await runs()) >= before + begun.length);
    }
    throw new Error(`${id} did not become ${stage}`);
  }

  protected async cleanUp(): Promise<void> {
    const id = this.#project;
    if (id === undefined) return;
    await this.step('clean up: only the ledger and what production knows stay', async () => {
      const { projects, production, snapshots } = this.cli.coppice;
      for (const agent of await production.list()) {
        if (!this.#production.has(agent.id)) continue;
        if (agent.stage !== 'rolled-back') await production.rollBack(agent.id, 'the demo is over');
      }
      await projects.kill(id, { delete: true });
      for (const { id: snapshot, project } of (await snapshots.list()).reverse())
        if (project === id) await snapshots.delete(snapshot);
    });
  }

  async #until(reached: () => Promise<boolean>): Promise<void> {
    while (!(await reached())) {
      this.cli.signal.throwIfAborted();
      await sleep(pollMs);
    }
  }
}
