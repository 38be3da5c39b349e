import { spawn } from 'node:child_process';
import { startFailure, systemPath } from '../programs/run-program.ts';
import { type Extracted, type ExtractOptions, extractRootfs } from './extract-rootfs.ts';

export interface ProgramEnd {
  readonly exitCode: number;
  readonly stderr: string;
}

const keptStderrBytes = 64 * 1024;

/**
 * Unpacks what a program writes to its standard output, under the same policy as any other archive. `judge` says what
 * an exit code means; it runs before the result counts, as a program may fail after a well-formed end.
 */
export async function extractFromProgram(
  argv: readonly [string, ...string[]],
  rootfs: string,
  options: ExtractOptions,
  judge: (end: ProgramEnd) => void,
): Promise<Extracted & ProgramEnd> {
  const [program, ...args] = argv;
  const child = spawn(program, args, {
    env: { PATH: systemPath, LC_ALL: 'C.UTF-8' },
    stdio: ['ignore', 'pipe', 'pipe'],
    signal: options.signal,
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-keptStderrBytes);
  });
  const ended = new Promise<ProgramEnd>((resolve, reject) => {
    child.on('error', (error) => reject(startFailure(program, error)));
    child.on('close', (exitCode, signal) =>
      resolve({
        exitCode: exitCode ?? 128,
        stderr: signal === null ? stderr : `${stderr}\nended by ${signal}`,
      }),
    );
  });
  const extracting = extractRootfs(child.stdout, rootfs, options);
  const [extracted, end] = await Promise.allSettled([
    extracting.catch((error: unknown) => {
      // Refused: nobody reads on, so the program is not left writing into a pipe that is full.
      child.kill('SIGTERM');
      throw error;
    }),
    ended,
  ]);
  if (end.status === 'rejected') throw end.reason;
  // A program that failed by itself explains more than the cut-off archive that it left.
  const refusedByUs = extracted.status === 'rejected' && isRefusal(extracted.reason);
  if (!refusedByUs) judge(end.value);
  if (extracted.status === 'rejected') throw extracted.reason;
  return { ...extracted.value, ...end.value };
}

const isRefusal = (error: unknown): boolean =>
  ['unsafe', 'unsupported', 'too_large'].includes((error as { code?: string }).code ?? '') ||
  'syscall' in (error as object);
