import { randomBytes } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { changeLine } from '../ui/changes.ts';
import { StagedDemo } from '../ui/staged-demo.ts';
import { type DefineCommand, verb } from '../verb.ts';

const ways = [
  { name: 'sort', script: 'sort -n' },
  { name: 'reverse', script: 'sort -nr' },
  { name: 'count', script: 'wc -l' },
] as const;

/** What the demo makes, so that all of it goes away whatever happens. */
class Demo extends StagedDemo {
  readonly #prefix = `demo-${randomBytes(3).toString('hex')}`;
  readonly #made: Sandbox[] = [];

  protected async show(): Promise<void> {
    const { coppice, signal } = this.cli;
    const dev = await this.step('create a sandbox', async () => {
      const created = await coppice.sandboxes.create({ name: this.#prefix, signal });
      this.#made.push(created);
      return created;
    });
    await this.step('run something in it', () =>
      this.#sh(dev, 'mkdir -p /workspace && for n in 4 2 5 1 3; do echo $n; done > /workspace/numbers'),
    );
    await this.step('snapshot it, while it runs', () => dev.snapshot({ name: 'baseline', signal }));
    await this.step('break it: rm -rf /workspace /etc', () => this.#sh(dev, 'rm -rf /workspace /etc'));
    await this.step('restore it', () => dev.restore('baseline', { signal }));
    await this.#sh(dev, 'test -s /workspace/numbers');
    const forks = await this.step('fork it three ways, in parallel', async () => {
      const grown = await dev.fork({ count: ways.length, name_prefix: `${this.#prefix}-way`, signal });
      this.#made.push(...grown.sandboxes);
      return grown.sandboxes;
    });
    await this.step('let each fork go its own way', () =>
      Promise.all(
        forks.map((fork, index) =>
          this.#sh(fork, `${ways[index]!.script} < /workspace/numbers > /workspace/${ways[index]!.name}`),
        ),
      ),
    );
    const winner = forks[0]!;
    const diff = await this.step(`compare: coppice diff ${dev.name} ${winner.name}`, () =>
      coppice.diff(dev.id, winner.id, { signal }),
    );
    for (const change of diff.changes) this.say(`     ${changeLine(change, this.cli.out)}`);
    await this.step(`merge the winner: coppice merge ${winner.name} ${dev.name}`, () =>
      dev.merge(winner, { signal }),
    );
    const result = await dev.files.readText('/workspace/sort', { signal });
    this.say(`     /workspace/sort in ${dev.name}: ${result.trim().split('\n').join(' ')}`);
  }

  protected async cleanUp(): Promise<void> {
    if (this.#made.length === 0) return;
    await this.step('clean up', async () => {
      const { coppice } = this.cli;
      const own = new Set(this.#made.map(({ id }) => id));
      await Promise.all(this.#made.map((sandbox) => sandbox.destroy()));
      const left = (await coppice.snapshots.list()).filter((snapshot) => own.has(snapshot.sandbox_id));
      // Newest first: an older one may be the parent of a newer one.
      for (const { id } of left.reverse()) await coppice.snapshots.delete(id);
    });
  }

  async #sh(sandbox: Sandbox, script: string): Promise<void> {
    const { exit_code: code, stderr } = await sandbox.exec(script, { signal: this.cli.signal });
    if (code !== 0) {
      throw new CoppiceError(
        'internal',
        `\`${script}\` failed in ${sandbox.name}: ${stderr.trim() || `exit ${code}`}`,
      );
    }
  }
}

/** What each leads to. Those that few want are loaded when they are asked for. */
const demos: readonly { name: string; next: string; make: (cli: Cli) => Promise<StagedDemo> }[] = [
  { name: '', next: 'coppice create dev', make: async (cli) => new Demo(cli) },
  {
    name: 'agents',
    next: 'coppice agent start --repo URL --task "…"',
    make: async (cli) => new (await import('../runs/agents-demo.ts')).AgentsDemo(cli),
  },
  {
    name: 'projects',
    next: 'coppice project create "My Experiment"',
    make: async (cli) => new (await import('../projects/projects-demo.ts')).ProjectsDemo(cli),
  },
];

export const define: DefineCommand = (program, cli) => {
  verb(program, 'demo', 'Run a demo: create, break, restore, fork, diff, merge, clean up')
    .argument(
      '[what]',
      '`agents`: tell, rewind, fork and merge an agent; `projects`: try three variants, promote the winner, roll back',
    )
    .action(async (what: string | undefined) => {
      const found = demos.find(({ name }) => name === (what ?? ''));
      if (found === undefined)
        throw new CoppiceError('invalid_argument', `there is no demo of ${what}`, {
          hint: `There are: ${demos.map(({ name }) => `coppice demo ${name}`.trim()).join(', ')}`,
        });
      const steps = await (await found.make(cli)).run();
      cli.out.result({ steps }, () => `That was it. Your turn: ${found.next}`);
    });
};
