import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface, type Interface } from 'node:readline';

export type Until = 'exit' | 'first line';

/**
 * Times peers from a small resident shell: started from here, each would also be charged for the fork of a whole
 * Node process, and Coppice would look better than it is.
 */
export class PeerShell implements AsyncDisposable {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: Interface;
  readonly #answers: AsyncIterator<string>;
  #stderr = '';

  constructor() {
    this.#child = spawn('bash', ['--noprofile', '--norc'], { env: { ...process.env, LC_ALL: 'C' } });
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-4000);
    });
    this.#lines = createInterface({ input: this.#child.stdout });
    this.#answers = this.#lines[Symbol.asyncIterator]();
  }

  /** Milliseconds that a program takes. One that fails is an error: a quick failure is not speed. */
  time(argv: readonly string[], until: Until = 'exit'): Promise<number> {
    return this.#timeCommand(argv.map(quoted).join(' '), until);
  }

  /** The same for several programs at once; all of it is given no input, and its output is thrown away. */
  timeScript(script: string): Promise<number> {
    return this.#timeCommand(`{ ${script}; }`, 'exit');
  }

  async #timeCommand(command: string, until: Until): Promise<number> {
    this.#stderr = '';
    const work =
      until === 'exit'
        ? `${command} </dev/null >/dev/null; c=$? e=$EPOCHREALTIME`
        : `read -r l < <(${command} </dev/null); e=$EPOCHREALTIME; wait $!; c=$?; [ -n "$l" ] || c=1`;
    this.#child.stdin.write(`s=$EPOCHREALTIME; ${work}; echo "$c $(( \${e/./} - \${s/./} ))"\n`);
    const { value, done } = await this.#answers.next();
    const [code, us] = String(value).split(' ').map(Number);
    if (done || code !== 0) throw new Error(`${command} failed with ${value}: ${this.#stderr.trim()}`);
    return us! / 1000;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#lines.close();
    this.#child.stdin.end();
    if (this.#child.exitCode === null) await new Promise((resolve) => this.#child.once('exit', resolve));
  }
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;
