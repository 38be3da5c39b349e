import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { skipFor } from '@coppice/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Fuzzer } from '../../scripts/testing/fuzzer.ts';

/** Short, as it is part of every test run; `scripts/fuzz` takes longer. */
const seconds = 2;

// Not tried again: other random input would hide what was found.
describe('the C programs', { ...skipFor(Fuzzer.whyNone()), retry: 0 }, () => {
  test.each(Fuzzer.all().map((fuzzer) => [fuzzer.name, fuzzer] as const))(
    'survive random input, and every input that once broke them: %s',
    async (_, fuzzer) => {
      const foundDir = mkdtempSync(join(tmpdir(), 'coppice-fuzz-'));
      onTestFinished(() => rmSync(foundDir, { recursive: true }));
      const { passed, output } = await fuzzer.run({ seconds, foundDir });
      const found = readdirSync(foundDir).map((name) =>
        readFileSync(join(foundDir, name)).toString('base64'),
      );
      expect({ passed, found }, output).toEqual({ passed: true, found: [] });
    },
  );
});
