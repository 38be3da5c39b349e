import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const repository = join(import.meta.dirname, '../..');
const programs = join(repository, '.tools/native-fuzzers');
const corpora = join(repository, 'native/fuzz/corpus');

export interface FuzzOptions {
  readonly seconds: number;
  /** Gets each input that breaks the program. */
  readonly foundDir: string;
  /** Holds the inputs that reached new code in earlier runs, and gets those of this one. */
  readonly grownDir?: string;
}

export interface FuzzOutcome {
  readonly passed: boolean;
  readonly output: string;
}

/** A program of native/fuzz: it feeds made-up input to one part of a C program. */
export class Fuzzer {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  static all(): Fuzzer[] {
    return readdirSync(corpora)
      .sort()
      .map((name) => new Fuzzer(name));
  }

  static whyNone(): string | undefined {
    return existsSync(join(programs, 'fuzz-json'))
      ? undefined
      : 'set-up could not build the fuzzers: no clang';
  }

  /**
   * Runs it confined, since an input may make it do anything: the machine's files are read-only, /tmp is its own, and there is
   * no network and no other process. It keeps the capabilities that it needs to change owners.
   */
  run({ seconds, foundDir, grownDir }: FuzzOptions): Promise<FuzzOutcome> {
    const confined = [
      ...['--unshare-all', '--die-with-parent', '--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc'],
      ...['--tmpfs', '/tmp', '--tmpfs', '/run', '--chdir', '/'],
      ...['CHOWN', 'FOWNER', 'FSETID', 'DAC_OVERRIDE'].flatMap((name) => ['--cap-add', `CAP_${name}`]),
      ...['--ro-bind', programs, '/run/programs', '--ro-bind', join(corpora, this.name), '/run/corpus'],
      ...[
        '--bind',
        foundDir,
        '/run/found',
        ...(grownDir === undefined ? [] : ['--bind', grownDir, '/run/grown']),
      ],
      ...['--setenv', 'ASAN_OPTIONS', 'detect_leaks=0:quarantine_size_mb=16:allocator_may_return_null=1'],
    ];
    const options = [
      ...[
        `-max_total_time=${seconds}`,
        '-artifact_prefix=/run/found/',
        '-timeout=60',
        '-rss_limit_mb=1024',
        '-max_len=70000',
      ],
      // The programs themselves print a lot.
      ...['-close_fd_mask=3', '-print_final_stats=1'],
    ];
    const directories = [...(grownDir === undefined ? [] : ['/run/grown']), '/run/corpus'];
    const child = spawn(
      'bwrap',
      [...confined, `/run/programs/fuzz-${this.name}`, ...options, ...directories],
      {
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    );
    return new Promise((resolve, reject) => {
      let output = '';
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        output = (output + text).slice(-20_000);
      });
      child.once('error', reject);
      child.once('close', (code) => resolve({ passed: code === 0, output }));
    });
  }
}
