import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { NotMeasured } from '../harness/row.ts';

const serverProgram = fileURLToPath(new URL('./server.ts', import.meta.url));
const portkeyHome = fileURLToPath(new URL('./portkey', import.meta.url));
const portkeyProgram = join(portkeyHome, 'node_modules/@portkey-ai/gateway/build/start-server.js');

interface Called {
  readonly answer: IncomingMessage;
  readonly firstByteMs: number;
  readonly closed: Promise<void>;
}

/** As long as prompts of agents are. After one answer the scripted upstream streams on for ever. */
const body = (answers: number): string =>
  JSON.stringify({
    model: 'gpt-4o-mini',
    stream: true,
    stream_options: { include_usage: true },
    messages: [
      { role: 'system', content: 'You help with code. '.repeat(2_000) },
      ...Array.from({ length: answers }, () => ({ role: 'assistant', content: 'ok' })),
      { role: 'user', content: 'hi' },
    ],
  });

/** Something that answers calls of models: the upstream itself, our gateway or Portkey's, as a process of its own. */
export class Contender implements AsyncDisposable {
  readonly url: string;
  readonly #child: ChildProcess;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 4_000 });

  private constructor(child: ChildProcess, url: string, headers: Readonly<Record<string, string>> = {}) {
    this.#child = child;
    this.url = url;
    this.#headers = headers;
  }

  static async upstream(): Promise<Contender> {
    const child = start(serverProgram, ['upstream']);
    return new Contender(child, await firstLine(child));
  }

  static async ours(upstream: Contender): Promise<Contender> {
    const child = start(serverProgram, ['ours', upstream.url]);
    return new Contender(child, await firstLine(child));
  }

  static async portkey(upstream: Contender): Promise<Contender> {
    installPortkey();
    const port = await freePort();
    const child = start(portkeyProgram, [`--port=${port}`, '--headless'], { NODE_ENV: 'production' });
    child.stdout!.resume();
    const headers = { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${upstream.url}/v1` };
    const portkey = new Contender(child, `http://127.0.0.1:${port}`, headers);
    for (let tries = 0; ; tries += 1) {
      try {
        await portkey.firstByteMs();
        return portkey;
      } catch (error) {
        if (tries === 100) throw error;
        await delay(200);
      }
    }
  }

  /** Of an answer that is read to its end. */
  async firstByteMs(): Promise<number> {
    const { firstByteMs, closed } = await this.#call(body(0));
    await closed;
    return firstByteMs;
  }

  /** What so many streams add to its memory that have begun and do not go on. */
  async idleStreamsMiB(count: number): Promise<number> {
    const before = this.#residentMiB();
    const open = await Promise.all(Array.from({ length: count }, () => this.#call(body(1))));
    await delay(1_000);
    const after = this.#residentMiB();
    for (const { answer } of open) answer.destroy();
    return after - before;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.destroy();
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await ended;
  }

  #residentMiB(): number {
    const status = readFileSync(`/proc/${this.#child.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+)/.exec(status)![1]) / 1024;
  }

  #call(text: string): Promise<Called> {
    return new Promise((resolve, reject) => {
      const began = performance.now();
      const headers = {
        'content-type': 'application/json',
        authorization: 'Bearer placeholder',
        ...this.#headers,
      };
      const options = { method: 'POST', agent: this.#agent, headers };
      const request = httpRequest(`${this.url}/v1/chat/completions`, options, (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`));
        answer.on('error', () => {});
        const closed = new Promise<void>((done) => answer.once('close', done));
        answer.once('data', () => resolve({ answer, firstByteMs: performance.now() - began, closed }));
      });
      request.on('error', reject);
      request.end(text);
    });
  }
}

/** With a lock of its own: nothing of the project depends on it. */
function installPortkey(): void {
  if (existsSync(portkeyProgram)) return;
  const options = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund'];
  try {
    execFileSync('npm', ['install', '--prefix', portkeyHome, ...options], { stdio: 'ignore' });
  } catch {
    throw new NotMeasured('@portkey-ai/gateway could not be installed');
  }
}

const start = (program: string, args: readonly string[], env: Record<string, string> = {}): ChildProcess =>
  spawn(process.execPath, [program, ...args], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, ...env },
  });

const firstLine = async (child: ChildProcess): Promise<string> => {
  for await (const line of createInterface({ input: child.stdout! })) {
    child.stdout!.resume();
    return line;
  }
  throw new Error('it ended before it was ready');
};

const freePort = (): Promise<number> =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
