/**
 * What the gateway adds to a call of a model, beside a direct call and beside Portkey's gateway, in the same run.
 * `scripts/run node bench/gateway/main.ts [ROUNDS]`. Portkey is installed first, with a lock of its own.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const rounds = Number(process.argv[2] ?? 600);
const here = import.meta.dirname;
const serverProgram = fileURLToPath(new URL('./server.ts', import.meta.url));
const portkeyHome = join(here, 'portkey');
const portkeyProgram = join(portkeyHome, 'node_modules/@portkey-ai/gateway/build/start-server.js');
if (!existsSync(portkeyProgram))
  execFileSync(
    'npm',
    ['install', '--prefix', portkeyHome, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund'],
    {
      stdio: 'inherit',
    },
  );

const children: ChildProcess[] = [];
const start = (program: string, args: readonly string[], env: Record<string, string> = {}): ChildProcess => {
  const child = spawn(process.execPath, [program, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  children.push(child);
  return child;
};

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

interface Target {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly pid: number | undefined;
}

const body = (turns: number): string =>
  JSON.stringify({
    model: 'gpt-4o-mini',
    stream: true,
    stream_options: { include_usage: true },
    messages: [
      // As long as prompts of agents are.
      { role: 'system', content: 'You help with code. '.repeat(2_000) },
      ...Array.from({ length: turns }, () => ({ role: 'assistant', content: 'ok' })),
      { role: 'user', content: 'hi' },
    ],
  });

const agent = new Agent({ keepAlive: true, maxSockets: 4_000 });

interface Called {
  readonly answer: IncomingMessage;
  readonly firstByteMs: number;
  readonly closed: Promise<void>;
}

const call = (target: Target, text: string): Promise<Called> =>
  new Promise((resolve, reject) => {
    const began = performance.now();
    const headers = {
      'content-type': 'application/json',
      authorization: 'Bearer placeholder',
      ...target.headers,
    };
    const request = httpRequest(
      `${target.url}/v1/chat/completions`,
      { method: 'POST', agent, headers },
      (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`));
        const closed = new Promise<void>((done) => answer.once('close', done));
        answer.once('data', () => resolve({ answer, firstByteMs: performance.now() - began, closed }));
      },
    );
    request.once('error', reject);
    request.end(text);
  });

const timed = async (target: Target): Promise<number> => {
  const { firstByteMs, closed } = await call(target, body(0));
  await closed;
  return firstByteMs;
};

const residentMb = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;

const median = (values: readonly number[]): number =>
  values.toSorted((one, other) => one - other)[values.length >> 1]!;

try {
  const upstreamUrl = await firstLine(start(serverProgram, ['upstream']));
  const ours = start(serverProgram, ['ours', upstreamUrl]);
  const oursUrl = await firstLine(ours);
  const port = await freePort();
  const portkey = start(portkeyProgram, [`--port=${port}`, '--headless'], { NODE_ENV: 'production' });
  portkey.stdout!.resume();
  const targets: Readonly<Record<'direct' | 'ours' | 'portkey', Target>> = {
    direct: { url: upstreamUrl, headers: {}, pid: undefined },
    ours: { url: oursUrl, headers: {}, pid: ours.pid },
    portkey: {
      url: `http://127.0.0.1:${port}`,
      headers: { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${upstreamUrl}/v1` },
      pid: portkey.pid,
    },
  };
  const names = Object.keys(targets) as (keyof typeof targets)[];
  for (let tries = 0; ; tries += 1) {
    try {
      await timed(targets.portkey);
      break;
    } catch (error) {
      if (tries === 100) throw error;
      await delay(200);
    }
  }
  const times: Record<keyof typeof targets, number[]> = { direct: [], ours: [], portkey: [] };
  for (let round = 0; round < rounds + 100; round += 1)
    for (const name of names) {
      const took = await timed(targets[name]);
      // The first ones are not compiled yet.
      if (round >= 100) times[name].push(took);
    }
  const direct = median(times.direct);
  const added = { ours: median(times.ours) - direct, portkey: median(times.portkey) - direct };
  console.log(`time to first byte, median of ${rounds}, request of ${Math.round(body(0).length / 1000)} kB`);
  console.log(`  direct         ${direct.toFixed(2)} ms`);
  console.log(`  ours adds      ${added.ours.toFixed(2)} ms`);
  console.log(`  Portkey adds   ${added.portkey.toFixed(2)} ms`);
  const ratio = added.ours / added.portkey;
  console.log(`  ours / Portkey ${ratio.toFixed(2)} × (target ≤ 0.3 ×)`);

  for (const name of ['ours', 'portkey'] as const) {
    const target = targets[name];
    const before = residentMb(target.pid!);
    const open = await Promise.all(Array.from({ length: 1_000 }, () => call(target, body(1))));
    await delay(1_000);
    const after = residentMb(target.pid!);
    console.log(
      `1,000 idle streams, ${name}: ${before.toFixed(0)} MiB before, ${(after - before).toFixed(0)} MiB more`,
    );
    for (const { answer } of open) answer.destroy();
  }
  process.exitCode = ratio <= 0.3 ? 0 : 1;
} finally {
  agent.destroy();
  for (const child of children) child.kill('SIGTERM');
}
