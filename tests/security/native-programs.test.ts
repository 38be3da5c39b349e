import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  globSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { eventually } from '@coppice/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ElfProgram } from './elf-program.ts';

const build = join(import.meta.dirname, '../../native/build');
const programs = readdirSync(build).filter((name) => name.startsWith('coppice-'));
/** Linked with musl, which has no checked functions. */
const withMusl = ['coppice-agent'];

test('the program of every folder is built', () => {
  const folders = globSync('*/rules.mk', { cwd: join(build, '..') }).map((file) => dirname(file));
  expect(programs.toSorted()).toEqual(folders.map((folder) => `coppice-${folder}`).toSorted());
});

describe.each(programs)('%s', (name) => {
  const program = new ElfProgram(join(build, name));

  test('is loaded anywhere, with a stack and data that cannot be executed, and constants that cannot be written', () => {
    expect(program.missing()).toEqual([]);
  });

  test('is built with guards on its stack', () => {
    expect(program.mentions('__stack_chk_fail')).toBe(true);
    expect(program.mentions('-fstack-protector-strong')).toBe(true);
    expect(program.mentions('-fstack-clash-protection')).toBe(true);
  });

  test('is built with functions that check the size of what they fill', ({ skip }) => {
    skip(withMusl.includes(name), 'musl has no such functions');
    expect(program.mentions('__chk_fail')).toBe(true);
    expect(['__snprintf_chk', '__fprintf_chk', '__read_chk'].some((one) => program.mentions(one))).toBe(true);
  });
});

test('a program that is built without all that is found out', () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-elf-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const source = join(directory, 'weak.c');
  writeFileSync(source, 'int main(void) { return 0; }\n');
  const weak = join(directory, 'weak');
  const flags = ['-no-pie', '-fno-pie', '-z', 'execstack', '-z', 'norelro', '-z', 'lazy'];
  execFileSync('cc', [...flags, '-fno-stack-protector', '-o', weak, source], { stdio: 'ignore' });
  expect(new ElfProgram(weak).missing()).toEqual([
    'can be loaded at any address',
    'is static',
    'a stack that is not executable',
    'relocations that are read-only',
    'all functions bound at the start',
  ]);
});

test('the constants of an agent that runs cannot be written, although musl does not see to that', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-agent-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'agent');
  copyFileSync(join(build, 'coppice-agent'), file);
  const agent = spawn(file, ['--listen', join(directory, 'socket')], { stdio: 'ignore' });
  try {
    await eventually('the agent listens', () => readdirSync(directory).includes('socket'));
    const maps = readFileSync(`/proc/${agent.pid}/maps`, 'utf8')
      .split('\n')
      .filter((line) => line.endsWith(file))
      .map((line) => line.split(' ')[1]);
    // The file is mapped in four pieces; of the last, which is data, the first pages are taken away.
    expect(maps).toEqual(['r--p', 'r-xp', 'r--p', 'r--p', 'rw-p']);
  } finally {
    agent.kill('SIGKILL');
    await once(agent, 'exit');
  }
});
