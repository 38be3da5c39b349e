/** Of the tests that run with sanitized programs: what the sanitizers found fails the run, whether or not a test noticed. */
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const reports = join(import.meta.dirname, '../../.tools/native-sanitized/reports');

export const setup = (): void => {
  rmSync(reports, { recursive: true, force: true });
  mkdirSync(reports, { recursive: true });
};

export const teardown = (): void => {
  const found = readdirSync(reports).map((name) => readFileSync(join(reports, name), 'utf8'));
  if (found.length > 0) throw new Error(`the sanitizers found something:\n${found.join('\n')}`);
};
