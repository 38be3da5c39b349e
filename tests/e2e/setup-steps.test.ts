import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const repository = join(import.meta.dirname, '..', '..');
let checkout: string;

/** A checkout that has the real machinery and these steps; every step notes in `ran` that it ran. */
beforeEach(() => {
  checkout = mkdtempSync(join(tmpdir(), 'coppice-setup-'));
  cpSync(join(repository, 'scripts', 'lib'), join(checkout, 'scripts', 'lib'), { recursive: true });
  mkdirSync(join(checkout, 'scripts', 'setup'));
  write('input', 'one');
});

afterEach(() => rmSync(checkout, { recursive: true, force: true }));

const write = (path: string, content: string): void => writeFileSync(join(checkout, path), content);

const step = (name: string, install: string, extra = ''): void =>
  write(
    `scripts/setup/${name}.sh`,
    `title="step ${name}"
levels=(client all test)
${extra}
inputs() { echo input; }
is_present() { [[ ! -e gone-${name} ]]; }
install() {
  echo ${name} >>ran
  ${install}
}
`,
  );

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const setUp = (level = 'all'): Promise<Outcome> =>
  new Promise((resolve) => {
    execFile('bash', [join(checkout, 'scripts/lib/run-steps.sh'), level], (error, stdout, stderr) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr }),
    );
  });

/** What decides at each start whether the steps are looked at. */
const isCurrent = (): Promise<boolean> =>
  new Promise((resolve) => {
    const script = 'coppice_root=$0; source "$0/scripts/lib/ensure-setup.sh"; _setup_is_current all';
    execFile('bash', ['-c', script, checkout], (error) => resolve(error === null));
  });

const ran = (): string[] =>
  existsSync(join(checkout, 'ran')) ? readFileSync(join(checkout, 'ran'), 'utf8').trim().split('\n') : [];

const isReady = (level: string): boolean => existsSync(join(checkout, '.tools', 'stamps', `ready-${level}`));

describe('set-up', () => {
  test('runs the steps in order and says on stderr where it is', async () => {
    step('20-second', 'true');
    step('10-first', 'echo noise');
    const outcome = await setUp();
    expect(outcome).toMatchObject({ code: 0, stdout: '' });
    expect(outcome.stderr).toMatch(/^\[1\/2\] step 10-first … \d+ s\s+\[2\/2\] step 20-second … \d+ s\s+$/);
    expect(ran()).toEqual(['10-first', '20-second']);
  });

  test('does nothing and says nothing the second time', async () => {
    step('10-first', 'true');
    await setUp();
    expect(await setUp()).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(ran()).toEqual(['10-first']);
  });

  test('is current at the very next start, although a step has built among the sources', async () => {
    for (const directory of ['native/agent', 'packages/cli/src', '.tools/node/bin', 'dist'])
      mkdirSync(join(checkout, directory), { recursive: true });
    for (const file of ['package.json', 'package-lock.json', '.npmrc', '.node-version', 'scripts/build.ts'])
      write(file, '');
    for (const file of ['packages/cli/package.json', 'dist/coppice.mjs']) write(file, '');
    writeFileSync(join(checkout, '.tools/node/bin/node'), '', { mode: 0o755 });
    step('10-first', 'sleep 0.1; mkdir -p native/build; touch native/build/program');
    await setUp();
    expect(await isCurrent()).toBe(true);
    write('native/agent/main.c', 'edited');
    expect(await isCurrent()).toBe(false);
  });

  test('runs a step again when what it depends on changed', async () => {
    step('10-first', 'true');
    await setUp();
    write('input', 'two');
    await setUp();
    expect(ran()).toEqual(['10-first', '10-first']);
  });

  test('runs only the step again whose product is gone', async () => {
    step('10-first', 'true');
    step('20-second', 'rm -f gone-20-second');
    await setUp();
    write('gone-20-second', '');
    await setUp();
    expect(ran()).toEqual(['10-first', '20-second', '20-second']);
  });

  test('stops at a step that fails in the middle, shows its log, and tries it again next time', async () => {
    step('10-first', 'echo the reason; false; echo not reached');
    step('20-second', 'true');
    const outcome = await setUp();
    expect(outcome.code).toBe(1);
    expect(outcome.stderr).toContain('    the reason\n');
    expect(outcome.stderr).not.toContain('not reached');
    expect(outcome.stderr).toContain('set-up stopped at "step 10-first"');
    expect(isReady('all')).toBe(false);
    step('10-first', 'true');
    expect((await setUp()).code).toBe(0);
    expect(ran()).toEqual(['10-first', '10-first', '20-second']);
  });

  test('goes on without an optional step, saying why, and does not ask for it again', async () => {
    step('10-first', 'echo nothing to be had here; false', 'optional=yes');
    step('20-second', 'true');
    const outcome = await setUp();
    expect(outcome.code).toBe(0);
    expect(outcome.stderr).toContain('step 10-first … left out: nothing to be had here');
    await setUp();
    expect(ran()).toEqual(['10-first', '20-second']);
  });

  test('leaves out the steps of other levels, and a larger level covers the smaller ones', async () => {
    step('10-first', 'true', 'levels=(all test)');
    step('20-second', 'true');
    await setUp('client');
    expect(ran()).toEqual(['20-second']);
    expect([isReady('client'), isReady('all')]).toEqual([true, false]);
    await setUp('all');
    expect(ran()).toEqual(['20-second', '10-first']);
    expect([isReady('client'), isReady('all'), isReady('test')]).toEqual([true, true, false]);
  });

  test('runs each step once when several commands start together', async () => {
    step('10-first', 'true');
    const outcomes = await Promise.all([setUp(), setUp(), setUp(), setUp()]);
    expect(outcomes.map((outcome) => outcome.code)).toEqual([0, 0, 0, 0]);
    expect(ran()).toEqual(['10-first']);
  });
});
