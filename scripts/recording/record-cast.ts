import { spawn } from 'node:child_process';

/** One line of an asciicast, version 2: when, and what the terminal was sent. */
type CastEvent = readonly [seconds: number, kind: 'o', data: string];

export interface Cast {
  readonly width: number;
  readonly height: number;
  readonly events: readonly CastEvent[];
}

export interface RecordOptions {
  readonly width: number;
  readonly height: number;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

const prompt = '\x1b[32m$\x1b[0m ';
const keySeconds = 0.03;
const readSeconds = 1.2;
const dim = (text: string): string => `\x1b[2m${text}\x1b[0m`;

/** Types each line of a script, and runs it on a terminal of its own. What commands take is real; typing and reading are made up. */
export const recordCast = async (script: string, options: RecordOptions): Promise<Cast> => {
  const events: CastEvent[] = [];
  let now = 0.5;
  const say = (text: string): void => {
    events.push([now, 'o', text]);
  };
  for (const line of script.split('\n').filter((text) => text.trim() !== '')) {
    say(prompt);
    now += 0.3;
    for (const key of line) {
      say(line.startsWith('#') ? dim(key) : key);
      now += keySeconds;
    }
    say('\r\n');
    now += 0.1;
    if (!line.startsWith('#')) {
      const began = performance.now();
      await run(line, options, (text) => {
        events.push([now + (performance.now() - began) / 1000, 'o', text]);
      });
      now += (performance.now() - began) / 1000;
    }
    now += readSeconds;
  }
  say(prompt);
  now += 3;
  say('');
  return { width: options.width, height: options.height, events };
};

/** `script` gives it a terminal. A command that fails ends the recording. */
const run = (
  line: string,
  { cwd, env, width, height }: RecordOptions,
  say: (text: string) => void,
): Promise<void> =>
  new Promise((resolve, reject) => {
    const sized = `stty cols ${width} rows ${height}; ${line}`;
    const child = spawn('script', ['--quiet', '--return', '--command', sized, '/dev/null'], {
      cwd,
      env: { ...env, TERM: 'xterm-256color', SHELL: '/bin/bash' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.setEncoding('utf8').on('data', say);
    child.once('error', reject);
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new Error(`${line} ended with ${code}: nothing was recorded`)),
    );
  });

/** As asciinema and its player read it. */
export const castText = ({ width, height, events }: Cast): string =>
  [{ version: 2, width, height }, ...events.map(([at, kind, data]) => [Number(at.toFixed(3)), kind, data])]
    .map((line) => `${JSON.stringify(line)}\n`)
    .join('');

export const parseCast = (text: string): Cast => {
  const [head, ...lines] = text.trim().split('\n');
  const { width, height } = JSON.parse(head ?? '{}') as { width: number; height: number };
  return { width, height, events: lines.map((line) => JSON.parse(line) as CastEvent) };
};
