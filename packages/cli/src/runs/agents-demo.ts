import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunEvent } from '@coppice/protocol';
import { gitBytes } from '../brought-in/git.ts';
import { StagedDemo } from '../ui/staged-demo.ts';

const pollMs = 50;
const tokenS = 600;

/** A program with a mistake, and a test that shows it. */
const files = {
  'total.sh': '# The total of the numbers on standard input.\nread first; echo "$first"\n',
  'test.sh': 'test "$(printf "1\\n2\\n3\\n" | sh total.sh)" = 6\n',
} as const;

const ways = {
  'add while you read': 'total=0; while read n; do total=$((total + n)); done; echo "$total"',
  'take the largest number': 'sort -n | tail -n 1',
  'add the first and the last': 'read first; echo $((first + $(tail -n 1)))',
} as const;

/** Plays an agent: what it does follows from what it is told. Untold, it makes the test pass by spoiling the test. */
const script = `set -e
cd /workspace
used() { coppice-agent event agent.tool_result call_id="$1" tool="$2" ok:=true output="$3" > /dev/null; }
say() { coppice-agent event agent.message text="$1" > /dev/null; }
told=$(coppice-agent inbox)
case $told in
${Object.entries(ways)
  .map(
    ([way, program]) => `*'${way}'*)
  cat > total.sh <<'PROGRAM'
# The total of the numbers on standard input.
${program}
PROGRAM
  used 1 edit total.sh
  say 'I wrote total.sh: ${way}.'
  coppice-agent done '${way}' > /dev/null ;;`,
  )
  .join('\n')}
*)
  say 'The test fails. I look at it.'
  used 1 read "$(cat test.sh)"
  case $told in *'Leave test.sh alone'*) say 'Understood: the test stays as it is.'; sleep 600 ;; esac
  echo true > test.sh
  used 2 edit test.sh
  say 'Done: the test passes now.'
  coppice-agent inbox --wait 25 > /dev/null
  coppice-agent inbox --after 1 > /dev/null
  say 'I was told, but the test is gone already.'
  sleep 600 ;;
esac
`;

/** An agent goes wrong, is told, is rewound, forked three ways, and the best way becomes a pull request that is merged. */
export class AgentsDemo extends StagedDemo {
  readonly #name = `demo-${randomBytes(3).toString('hex')}`;
  readonly #runs = new Set<string>();
  #hasRepository = false;
  #sandbox: string | null = null;

  protected async show(): Promise<void> {
    const { branches, repositories, runs, sandboxes } = this.cli.coppice;
    const { signal } = this.cli;
    const repository = this.#name;
    await this.step('make a repository: a program, and a test that fails', () => this.#publish());
    const started = await this.step(
      'give the ticket to an agent: branch, sandbox, agent at work',
      async () => {
        const begun = await branches.start(
          {
            repository,
            ticket: 'total-1',
            title: 'The total is wrong',
            run: { task: 'Make `sh test.sh` pass.', command: script },
          },
          { signal },
        );
        this.#sandbox = begun.sandbox_id;
        this.#runs.add(begun.run_id!);
        return begun;
      },
    );
    const run = started.run_id!;
    await this.step('it goes wrong: it spoils the test instead of mending the program', () =>
      this.#said(run, 'the test passes now'),
    );
    await this.step('tell it', async () => {
      await runs.tell(run, 'That is cheating: put test.sh back.', { signal });
      await this.#said(run, 'I was told');
    });
    const before = await this.step('rewind it to the step before the mistake', async () => {
      const steps = await runs.steps(run, { signal });
      const step = steps.findLast(({ title }) => title === 'read')!.number;
      await runs.rewind(run, step, { message: 'Leave test.sh alone.', signal });
      await this.#said(run, 'the test stays as it is');
      return step;
    });
    const test = await sandboxes.at(this.#sandbox!).files.readText('/workspace/test.sh', { signal });
    this.say(`     test.sh is back: ${test.trim()}`);
    const race = await this.step('fork it three ways, judge each by the test, merge the best', async () => {
      const begun = await runs.race(run, {
        n: Object.keys(ways).length,
        from: before,
        messages: Object.keys(ways),
        judge: 'cd /workspace && sh test.sh',
        signal,
      });
      for (const entry of begun.entries) this.#runs.add(entry.run_id);
      return runs.waitForRace(run, begun.number, { signal });
    });
    for (const [index, entry] of race.entries.entries()) {
      const mark = entry.run_id === race.winner ? ' (the quickest: merged)' : '';
      const verdict = entry.exit_code === 0 ? 'passes' : 'fails';
      this.say(`     ${Object.keys(ways)[index]}: ${verdict}${mark}`);
    }
    const opened = await this.step('open the pull request', async () => {
      await runs.stop(run, { reason: 'its forks have done the work', signal });
      return branches.finish(
        { repository, branch: started.branch_name, message: 'Add all numbers' },
        { signal },
      );
    });
    const pull = await repositories.at(repository).pull(opened.pr_number!, { signal });
    this.say(`     #${pull.number} ${pull.title}`);
    await this.step('merge it', async () => {
      const merged = await branches.merge({ repository, branch: started.branch_name }, { signal });
      if (!merged.success) throw new Error(`the pull request was not merged: ${merged.state}`);
      this.#sandbox = merged.sandbox_id;
    });
  }

  protected async cleanUp(): Promise<void> {
    if (!this.#hasRepository) return;
    await this.step('clean up', async () => {
      const { runs, repositories, sandboxes } = this.cli.coppice;
      const there = new Set((await runs.list()).map(({ id }) => id));
      // Forks first: they grew from steps of the run.
      for (const id of [...this.#runs].reverse()) {
        if (!there.has(id)) continue;
        await runs.stop(id);
        await runs.remove(id);
      }
      if (this.#sandbox !== null) await sandboxes.at(this.#sandbox).destroy();
      await repositories.at(this.#name).remove();
    });
  }

  /** The first commit, pushed with a token of its own, which is gone afterwards. */
  async #publish(): Promise<void> {
    const { repositories, tokens } = this.cli.coppice;
    const { signal } = this.cli;
    const { clone_url } = await repositories.create({ name: this.#name }, { signal });
    this.#hasRepository = true;
    const directory = await mkdtemp(join(tmpdir(), 'coppice-demo-'));
    const token = await tokens.create({ name: this.#name, scope: 'admin', expires_in_s: tokenS });
    try {
      for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
      const login = Buffer.from(`x:${token.secret}`).toString('base64');
      const env = {
        GIT_AUTHOR_NAME: 'Demo',
        GIT_AUTHOR_EMAIL: 'demo@example.invalid',
        GIT_COMMITTER_NAME: 'Demo',
        GIT_COMMITTER_EMAIL: 'demo@example.invalid',
        GIT_CONFIG_COUNT: '1',
        GIT_CONFIG_KEY_0: 'http.extraHeader',
        GIT_CONFIG_VALUE_0: `Authorization: Basic ${login}`,
      };
      for (const args of [
        ['init', '--quiet', '--initial-branch=main'],
        ['add', '.'],
        ['commit', '--quiet', '--no-gpg-sign', '-m', 'A total, and its test'],
        ['push', '--quiet', clone_url, 'main'],
      ])
        await gitBytes(args, { cwd: directory, env });
    } finally {
      await tokens.revoke(token.id);
      await rm(directory, { recursive: true, force: true });
    }
  }

  /** Until the agent has said that; a run that ended without it says why. */
  async #said(run: string, words: string): Promise<void> {
    const { runs } = this.cli.coppice;
    const has = (event: RunEvent) => event.type === 'agent.message' && event.data.text.text.includes(words);
    for (;;) {
      const { events } = await runs.listEvents(run, { types: 'agent.message', signal: this.cli.signal });
      if (events.some(has)) return;
      const { state, reason } = await runs.get(run, { signal: this.cli.signal });
      if (state === 'failed') throw new Error(`the agent failed: ${reason}`);
      await sleep(pollMs, undefined, { signal: this.cli.signal });
    }
  }
}
