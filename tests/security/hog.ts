import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ProcessStream, Sandbox } from '@coppice/sdk';

const run = promisify(execFile);
const source = fileURLToPath(new URL('./exhaust.c', import.meta.url));
const inside = '/root/exhaust';

export interface Taken {
  readonly count: number;
  /** The error that stopped it, or `enough`; `killed` when the kernel ended it, or the whole sandbox, for memory. */
  readonly reason: string;
  /** That wait in its sockets. */
  readonly socketBytes: number;
}

/** What is taken is given back at the end of the block. */
export interface Hold extends Disposable {
  readonly taken: Taken;
}

/** A program that takes as much of one thing of the kernel's as it is told, in a sandbox or on the host. */
export class Hog implements Disposable {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async build(): Promise<Hog> {
    const hog = new Hog(mkdtempSync(join(tmpdir(), 'coppice-hog-')));
    await run('cc', ['-static', '-O1', '-o', hog.#program, source]);
    return hog;
  }

  /** Takes it in the sandbox, and holds it until the end of the block. */
  async hold(sandbox: Sandbox, thing: string, most: number): Promise<Hold> {
    await sandbox.files.write(inside, readFileSync(this.#program), { mode: '755' });
    const stream = await sandbox.execStream([inside, thing, String(most)]);
    const taken = parse(await firstLine(stream));
    return { taken, [Symbol.dispose]: () => stream.close() };
  }

  /** Takes it as root of the host, and gives it back at once. */
  async onHost(thing: string, most: number): Promise<Taken> {
    const child = run(this.#program, [thing, String(most)], { cwd: this.#directory });
    child.child.stdin?.end();
    return parse((await child).stdout);
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }

  get #program(): string {
    return join(this.#directory, 'exhaust');
  }
}

async function firstLine(stream: ProcessStream): Promise<string> {
  const chunks = stream[Symbol.asyncIterator]();
  let text = '';
  try {
    // Not by `for await`: leaving that would end the program.
    while (!text.includes('\n')) {
      const { value, done } = await chunks.next();
      if (done === true) return text;
      text += value.data.toString();
    }
  } catch {
    // The sandbox itself was ended for memory.
    return '';
  }
  return text;
}

function parse(line: string): Taken {
  const match = /^(\d+) (\S+) (\d+)$/m.exec(line);
  if (match === null) return { count: 0, reason: 'killed', socketBytes: 0 };
  return { count: Number(match[1]), reason: match[2]!, socketBytes: Number(match[3]) };
}
