import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { skipFor } from '@coppice/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ElfProgram } from './elf-program.ts';

const repository = join(import.meta.dirname, '../..');
const installed = join(repository, 'native/build');
const sanitized = join(repository, '.tools/native-sanitized');
const isBuilt = existsSync(join(sanitized, 'coppice-tree'));

describe('sanitizers', skipFor(isBuilt ? undefined : 'set-up could not build programs with them'), () => {
  test('are in every program that tests run with a second time', () => {
    const programs = readdirSync(installed).filter((name) => name.startsWith('coppice-'));
    expect(programs.length).toBeGreaterThan(0);
    for (const name of programs) {
      const program = new ElfProgram(join(sanitized, name));
      expect(program.mentions('__asan_init'), name).toBe(true);
      expect(program.mentions('__ubsan_handle'), name).toBe(true);
    }
  });

  test.each([
    [
      'a write past the end of memory',
      'char *memory = malloc(4); memory[count + 3] = 1; free(memory);',
      'overflow',
    ],
    ['a number that overflows', 'int number = 2147483647; number += count; printf("%d", number);', undefined],
  ])('end a program at %s by a signal', (_, fault, word) => {
    const directory = mkdtempSync(join(tmpdir(), 'coppice-sanitizer-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const [source, program] = [join(directory, 'fault.c'), join(directory, 'fault')];
    writeFileSync(
      source,
      `#include <stdio.h>\n#include <stdlib.h>\nint main(int count, char **words) { (void)words; ${fault} return 0; }\n`,
    );
    // As native/Makefile does it.
    execFileSync('cc', [
      ...['-fsanitize=address,undefined', '-fno-sanitize-recover=all', `-DREPORTS="${directory}/report"`],
      ...[join(repository, 'native/sanitize/options.c'), source, '-o', program],
    ]);
    expect(spawnSync(program, { encoding: 'utf8' }).signal).toBe('SIGABRT');
    const reports = readdirSync(directory).filter((name) => name.startsWith('report.'));
    if (word !== undefined)
      expect(reports.map((name) => readFileSync(join(directory, name), 'utf8')).join()).toContain(word);
  });
});
