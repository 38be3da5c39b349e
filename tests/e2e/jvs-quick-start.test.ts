import { access, mkdir, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { skipFor } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { JvsFixture } from '../../packages/workspaces/test/jvs-fixture.ts';

// Many real processes: on a machine with much else to do they take their time.
vi.setConfig({ testTimeout: 900_000, hookTimeout: 300_000 });

let jvs: JvsFixture;
let sandboxes: string;

const onPath = async (program: string): Promise<boolean> => {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    if (
      await access(join(folder, program)).then(
        () => true,
        () => false,
      )
    )
      return true;
  }
  return false;
};
const hasPython = await onPath('python3');
const hasJq = await onPath('jq');

/** Stands for the agent: leaves traces as an agent would, and writes the output that it is asked for. */
const agent = `
[[ $1 == *.py ]] || exit 64
mkdir -p results
echo "$*" >> agent.log
while (($#)); do
  [[ $1 == --output ]] && echo '{"outcome": "success"}' > "$2"
  shift
done`;

const jqForTwoQuestions = `
[[ $1 == -r ]] && { shift; raw=1; }
node -e 'const v = JSON.parse(require("fs").readFileSync(0, "utf8"))[process.argv[1].slice(1)]; console.log(process.argv[2] ? v : JSON.stringify(v))' "$1" "\${raw-}"`;

beforeAll(async () => {
  jvs = await JvsFixture.create();
  sandboxes = join(jvs.home, 'agent-sandbox');
  await mkdir(sandboxes);
  await jvs.program('python', agent);
  if (!hasJq) await jvs.program('jq', jqForTwoQuestions);
  const environment = join(jvs.home, 'agent-environment');
  for (const folder of ['config', 'models', 'agent', 'results'])
    await mkdir(join(environment, folder), { recursive: true });
  await writeFile(join(environment, 'agent.py'), '# an agent\n');
  await writeFile(join(environment, 'models/model_a.pth'), 'model a\n');
  await writeFile(join(environment, 'models/model_b.pth'), 'model b\n');
  await writeFile(join(environment, 'config/experiment1.json'), '{}\n');
  await writeFile(join(environment, 'agent/tool.py'), '# a tool\n');
  const ended = await jvs.bash(
    [
      `cd ${sandboxes}`,
      'jvs init agent-base',
      'cd agent-base/main',
      'cp -r ~/agent-environment/* .',
      'jvs snapshot "Agent baseline v1" --tag baseline --tag v1',
    ].join('\n'),
  );
  if (ended.code !== 0) throw new Error(ended.stderr);
});
afterAll(() => jvs[Symbol.asyncDispose]());

/** Runs the lines in one shell that stands in the worktree all the while. */
const inWorktree = async (script: string, folder = 'agent-base/main'): Promise<string> => {
  const ended = await jvs.bash(script, { cwd: join(sandboxes, folder) });
  expect(ended.stderr).not.toMatch(/error|cannot|No such/);
  expect(ended.code).toBe(0);
  return ended.stdout;
};

const countTagged = async (tag: string): Promise<number> =>
  (await inWorktree(`jvs history --tag ${tag} | wc -l`).then((text) => Number(text.trim()))) ?? 0;

describe('the quick start, as it is printed', () => {
  test('one experiment runs from the baseline and is kept', async () => {
    await inWorktree(`
jvs restore baseline
python agent.py --config config/experiment1.json --output results/run1.json
jvs snapshot "Run 1: success" --tag run1 --tag agent`);
    expect(await countTagged('run1')).toBe(1);
  });

  test('a hundred experiments in a row each begin with the baseline, in a shell that never leaves the worktree', async () => {
    await inWorktree(`
for RUN in {1..100}; do
    # Reset to baseline
    jvs restore baseline

    # Run agent with different seed
    python agent.py \\
        --seed $RUN \\
        --config config/experiment_$RUN.json \\
        --output results/$RUN.json

    # Snapshot result state
    RESULT=$(cat results/$RUN.json | jq -r '.outcome')
    jvs snapshot "Run $RUN: $RESULT" --tag "run-$RUN" --tag agent
done`);
    expect(await countTagged('agent')).toBe(101);
    const states = await inWorktree('jvs restore run-73; cat agent.log; ls results');
    expect(states).toContain('--seed 73 ');
    expect(states).not.toContain('--seed 72 ');
    expect(states.trim().split('\n').at(-1)).toBe('73.json');
  });

  test('experiments one after the other', async () => {
    const log = await inWorktree(`
jvs restore baseline
python agent.py --task task1
jvs snapshot "After task1" --tag task1
jvs restore baseline  # Reset to clean state
python agent.py --task task2
jvs snapshot "After task2" --tag task2
cat agent.log`);
    expect(log).toContain('--task task2');
    expect(log).not.toContain('agent.py --task task1');
  });

  test('experiments side by side in worktrees', async () => {
    await inWorktree(
      `
jvs worktree fork experiment-a
jvs worktree fork experiment-b
jvs worktree fork experiment-c

cd worktrees/experiment-a/main
jvs restore baseline
python agent.py --variant A &

cd ../../experiment-b/main
jvs restore baseline
python agent.py --variant B &

cd ../../experiment-c/main
jvs restore baseline
python agent.py --variant C &

wait`,
      'agent-base',
    );
    for (const [name, variant] of Object.entries({ a: 'A', b: 'B', c: 'C' })) {
      const log = await inWorktree('cat agent.log', `agent-base/worktrees/experiment-${name}/main`);
      expect(log).toBe(`agent.py --variant ${variant}\n`);
    }
  });

  test('two models compared: a tag that is used again names the newest', async () => {
    const counts = await inWorktree(`
jvs restore v1
cp models/model_a.pth checkpoint.pth
jvs snapshot "Baseline: model A" --tag baseline --tag model-a
for RUN in {1..4}; do
    jvs restore baseline
    python agent.py --checkpoint checkpoint.pth --run $RUN
    jvs snapshot "ModelA-run-$RUN" --tag model-a
done
cp models/model_b.pth checkpoint.pth
jvs snapshot "Baseline: model B" --tag baseline --tag model-b
for RUN in {1..4}; do
    jvs restore baseline
    cmp checkpoint.pth models/model_b.pth
    python agent.py --checkpoint checkpoint.pth --run $RUN
    jvs snapshot "ModelB-run-$RUN" --tag model-b
done
echo counts
jvs history --tag model-a | wc -l  # Count A experiments
jvs history --tag model-b | wc -l  # Count B experiments`);
    expect(counts.split('counts\n')[1]?.trim().split(/\s+/)).toEqual(['5', '5']);
  });

  test('a sweep over hyperparameters', async () => {
    await inWorktree(`
jvs snapshot "Hyperparam sweep baseline" --tag hps-baseline
for LR in 0.001 0.01 0.1; do
    for BATCH in 16 32 64; do
        RUN_ID="lr-\${LR}-batch-\${BATCH}"
        jvs restore hps-baseline
        python agent.py \\
            --learning-rate $LR \\
            --batch-size $BATCH \\
            --output results/$RUN_ID.json
        jvs snapshot \\
            "HP sweep: LR=$LR, BATCH=$BATCH" \\
            --tag hps \\
            --tag "lr-$LR" \\
            --tag "batch-$BATCH"
    done
done
python analyze_hps.py`);
    expect(await countTagged('hps')).toBe(9);
    expect(await countTagged('lr-0.01')).toBe(3);
  });

  test('stages that build on each other, and back to the last good one', async () => {
    const log = await inWorktree(`
jvs restore v1
python agent.py --stage 1
jvs snapshot "Stage 1 complete" --tag stage1
python agent.py --stage 2
jvs snapshot "Stage 2 complete" --tag stage2
python agent.py --stage 3
jvs snapshot "Stage 3 complete" --tag stage3
jvs restore --latest-tag stage2
echo now
cat agent.log`);
    expect(log.split('now\n')[1]).toBe('agent.py --stage 1\nagent.py --stage 2\n');
  });

  test('faults injected one by one', async () => {
    await inWorktree(`
FAULTS=(
    "network_timeout"
    "api_error"
    "missing_file"
    "invalid_input"
    "resource_limit"
)
for FAULT in "\${FAULTS[@]}"; do
    jvs restore baseline
    python agent.py --inject-fault $FAULT --output results/$FAULT.json
    jvs snapshot "Fault test: $FAULT" --tag fault-test --tag "$FAULT"
done`);
    expect(await countTagged('fault-test')).toBe(5);
    expect(await inWorktree('jvs history | grep "network_timeout"')).toMatch(/Fault test: network_timeout/);
  });

  test('the good habits: restore first, notes that say much, tags by kind, verification', async () => {
    const output = await inWorktree(`
for RUN in {1..3}; do
    jvs restore baseline
    python agent.py --run $RUN
    jvs snapshot "Run $RUN"
done
for RUN in {1..3}; do
    python agent.py --run $RUN
    jvs snapshot "Run $RUN"
done
jvs snapshot \\
    "GPT-4 temp=0.7 max_tokens=1000 -> success:95% confidence" \\
    --tag gpt4 --tag temp-0.7
jvs snapshot "experiment 123"
jvs snapshot "..." --tag langchain --tag research
jvs snapshot "..." --tag autogen --tag coding
jvs snapshot "..." --tag openai --tag chat
echo tagged
jvs history --tag langchain
jvs verify baseline`);
    expect(output.split('tagged\n')[1]).toMatch(/\[langchain\] \[research\]\nOK /);
  });

  test('the whole history verifies', async () => {
    expect(await inWorktree('jvs verify --all')).not.toContain('DAMAGED');
  });

  test('the engine is said, and init refuses one that cannot be had', async () => {
    const engines = await jvs.bash(
      `
jvs doctor --json | jq '.engine'
jvs init agent-env --engine juicefs-clone`,
      { cwd: join(sandboxes, 'agent-base/main') },
    );
    expect(engines.code).toBe(11);
    expect(engines.stdout).toMatch(/^"(copy|reflink-copy|btrfs)"/);
    expect(engines.stderr).toMatch(/the engine juicefs-clone cannot be used here/);
  });

  test('snapshots of some paths', async () => {
    const output = await inWorktree(`
jvs restore v1
echo better >> agent/tool.py
echo result > results/1.txt
jvs snapshot "Code update" --paths agent/ config/
jvs snapshot "Experiment results" --paths results/`);
    expect(output).toMatch(/Code update \(only agent config\)/);
    expect(output).toMatch(/Experiment results \(only results\)/);
  });

  test('ten worktrees at work at once', async () => {
    await inWorktree(
      `
for i in {1..10}; do
    jvs worktree fork exp-$i
done
for i in {1..10}; do
    (
        cd worktrees/exp-$i/main
        jvs restore baseline
        python agent.py --run $i
    ) &
done
wait`,
      'agent-base',
    );
    for (let run = 1; run <= 10; run += 1) {
      const log = await inWorktree('cat agent.log', `agent-base/worktrees/exp-${run}/main`);
      expect(log.trim().split('\n').at(-1)).toBe(`agent.py --run ${run}`);
    }
  });

  test('a scheduler that enters the worktree for each step', async () => {
    const place = join(sandboxes, 'agent-base');
    for (const step of [
      `cd ${place}/main && jvs restore baseline`,
      `cd ${place}/main && python agent.py`,
      `cd ${place}/main && jvs snapshot "Airflow run 20240101" --tag airflow`,
    ]) {
      expect((await jvs.bash(step)).code).toBe(0);
    }
    expect(await countTagged('airflow')).toBe(1);
  });
});

const modules: Readonly<Record<string, string>> = {
  'langchain/__init__.py': '',
  'langchain/agents.py': `import builtins
class Agent:
    def run(self, prompt): return {"status": "answered"}
def initialize_agent(*_): return Agent()
builtins.agent = Agent()
`,
  'autogen.py': `class AssistantAgent:
    def __init__(self, *_): pass
class UserProxyAgent:
    def __init__(self, *_): pass
    def initiate_chat(self, assistant, message): return {"status": "talked"}
`,
  'openai.py': `import builtins, json
from types import SimpleNamespace as N
builtins.json = json
class OpenAI:
    def __init__(self):
        answer = N(choices=[N(message=N(content="done"))])
        self.chat = N(completions=N(create=lambda **_: answer))
`,
};

const scripts: Readonly<Record<string, string>> = {
  'agent_runner.py': `import subprocess
import sys
import json

def run_agent_experiment(prompt: str, config: dict):
    subprocess.run(['jvs', 'restore', 'baseline'], check=True)

    from langchain.agents import initialize_agent

    result = agent.run(prompt)

    snapshot_note = f"LangChain: {prompt[:50]}... -> {result['status']}"
    subprocess.run([
        'jvs', 'snapshot', snapshot_note,
        '--tag', 'langchain',
        '--tag', result['status']
    ], check=True)

    return result

if __name__ == '__main__':
    result = run_agent_experiment(sys.argv[1], {})
    print(json.dumps(result, indent=2))
`,
  'autogen_runner.py': `import subprocess
import autogen

def run_autogen_experiment(task: str):
    subprocess.run(['jvs', 'restore', 'baseline'], check=True)

    assistant = autogen.AssistantAgent(...)
    user_proxy = autogen.UserProxyAgent(...)

    result = user_proxy.initiate_chat(
        assistant,
        message=task
    )

    snapshot_note = f"AutoGen: {task[:50]}... -> {result['status']}"
    subprocess.run([
        'jvs', 'snapshot', snapshot_note,
        '--tag', 'autogen',
        '--tag', result['status']
    ], check=True)

if __name__ == '__main__':
    run_autogen_experiment("Analyze this dataset and generate insights")
`,
  'openai_runner.py': `import subprocess
from openai import OpenAI

def run_openai_agent(task: str):
    subprocess.run(['jvs', 'restore', 'baseline'], check=True)

    client = OpenAI()
    response = client.chat.completions.create(
        model="gpt-4",
        messages=[{"role": "user", "content": task}]
    )

    with open('result.json', 'w') as f:
        json.dump(response.choices[0].message.content, f)

    subprocess.run([
        'jvs', 'snapshot',
        f"OpenAI: {task[:50]}...",
        '--tag', 'openai',
        '--tag', 'completed'
    ], check=True)

if __name__ == '__main__':
    run_openai_agent("Write a Python function to sort a list")
`,
};

describe('the quick start for Python, as it is printed', () => {
  test(
    'a script restores, works and takes a snapshot with subprocess and check=True',
    skipFor(hasPython ? undefined : 'this machine has no python3'),
    async () => {
      const place = join(jvs.home, 'python');
      await mkdir(join(place, 'langchain'), { recursive: true });
      for (const [name, text] of Object.entries({ ...modules, ...scripts }))
        await writeFile(join(place, name), text);
      const cwd = join(sandboxes, 'agent-base/main');
      const env = { PYTHONPATH: place, PYTHONDONTWRITEBYTECODE: '1', HOME: process.env.HOME ?? jvs.home };
      for (const name of Object.keys(scripts)) {
        const ended = await jvs.run('python3', [join(place, name), 'Sort this'], { cwd, env });
        expect(ended).toMatchObject({ code: 0 });
      }
      const notes = await inWorktree('jvs history -n 3');
      expect(notes).toMatch(/OpenAI: Write a Python function to sort a list\.\.\. \[openai\] \[completed\]/);
      expect(notes).toMatch(/AutoGen: Analyze this dataset .* -> talked \[autogen\] \[talked\]/);
      expect(notes).toMatch(/LangChain: Sort this\.\.\. -> answered \[langchain\] \[answered\]/);
    },
  );
});

test('bin/jvs of the checkout does the same', async () => {
  const ended = await jvs.bash(
    `
PATH=${join(import.meta.dirname, '../../bin')}:$PATH
unset COPPICE_TREE_PROGRAM
type -P jvs
jvs init checkout
cd checkout/main
echo one > f
jvs snapshot "From the checkout" --tag baseline
echo two > f
jvs restore baseline
cat f`,
    { cwd: sandboxes, env: { HOME: process.env.HOME ?? jvs.home } },
  );
  expect(ended.code).toBe(0);
  expect(ended.stdout).toMatch(/^\S+\/bin\/jvs\nThe workspace checkout is ready/);
  expect(ended.stdout.trimEnd().split('\n').at(-1)).toBe('one');
});
