import { spawn } from 'node:child_process';

interface Check {
  readonly name: string;
  readonly argv: readonly [string, ...string[]];
  /** How a person settles what it finds. */
  readonly hint: string;
}

export interface CheckOutcome {
  readonly check: Check;
  readonly passed: boolean;
  readonly output: string;
  readonly seconds: number;
}

const checks: readonly Check[] = [
  { name: 'format and lint', argv: ['biome', 'ci', '--colors=off', '.'], hint: 'npm run format' },
  {
    name: 'format of C',
    argv: ['bash', '-c', 'git ls-files -z "native/*.[ch]" | xargs -0 clang-format --dry-run --Werror'],
    hint: 'npm run format',
  },
  {
    name: 'types',
    argv: ['tsc', '--noEmit', '--incremental', '--tsBuildInfoFile', '.tools/types.tsbuildinfo', '-p', '.'],
    hint: 'scripts/run npx tsc --noEmit --incremental --tsBuildInfoFile .tools/types.tsbuildinfo -p .',
  },
  {
    name: 'types of the page',
    argv: ['tsc', '--noEmit', '-p', 'packages/web'],
    hint: 'scripts/run npx tsc --noEmit -p packages/web',
  },
  {
    name: 'dependency direction',
    argv: ['depcruise', '--config', '.dependency-cruiser.cjs', '--output-type', 'err-long', 'packages'],
    hint: 'each rule in .dependency-cruiser.cjs says why it is there',
  },
  { name: 'dead code', argv: ['knip', '--no-progress'], hint: 'remove it, or use it' },
  { name: 'generated files', argv: ['node', 'scripts/generate.ts', '--check'], hint: 'npm run generate' },
];

const runCheck = (check: Check): Promise<CheckOutcome> =>
  new Promise((resolve) => {
    const began = performance.now();
    const [command, ...args] = check.argv;
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const chunks: Buffer[] = [];
    const finish = (passed: boolean, extra = ''): void =>
      resolve({
        check,
        passed,
        output: Buffer.concat(chunks).toString('utf8') + extra,
        seconds: (performance.now() - began) / 1000,
      });
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.once('error', (error) => finish(false, `${command} did not start: ${error.message}\n`));
    child.once('close', (code, signal) => finish(code === 0, signal === null ? '' : `ended by ${signal}\n`));
  });

/** All of them, whatever the others find. */
export const runChecks = async (
  onOutcome: (outcome: CheckOutcome) => void,
): Promise<readonly CheckOutcome[]> =>
  Promise.all(
    checks.map(async (check) => {
      const outcome = await runCheck(check);
      onOutcome(outcome);
      return outcome;
    }),
  );
