import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { formatBytes } from '@coppice/console';
import { CoppiceError } from '@coppice/protocol/errors';

interface GitOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: Buffer;
  /** Git is ended when it writes more than this. */
  readonly maxBytes?: number;
}

/** Nothing but git itself runs: no hook, no watcher, no pager, no question. */
const quiet = ['-c', 'core.hooksPath=/dev/null', '-c', 'core.fsmonitor=false', '-c', 'core.quotePath=false'];
const alone = { GIT_TERMINAL_PROMPT: '0', GIT_PAGER: 'cat', LC_ALL: 'C' };

/** What a repository around us would make git believe about another directory. */
const inherited = ['GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_OBJECT_DIRECTORY', 'GIT_PREFIX'];

const environment = (more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv => {
  const env: NodeJS.ProcessEnv = { ...process.env, ...alone };
  for (const name of inherited) delete env[name];
  return { ...env, ...more };
};

/** Runs git on this machine; its output byte for byte. */
export const gitBytes = async (
  args: readonly string[],
  { cwd, env, input, maxBytes = Number.POSITIVE_INFINITY }: GitOptions = {},
): Promise<Buffer> => {
  const child = spawn('git', [...quiet, ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    env: environment(env),
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  // It may end before it has read everything; its exit says the rest.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const output = async (): Promise<Buffer> => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > maxBytes) throw tooLong(maxBytes);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  };
  const [out, stderr, code] = await Promise.all([output(), text(child.stderr), ended]).catch(
    (error: NodeJS.ErrnoException | CoppiceError) => {
      child.kill('SIGKILL');
      throw error instanceof CoppiceError ? error : failed(args, error);
    },
  );
  if (code !== 0) throw failed(args, Object.assign(new Error(`git ended with ${code}`), { stderr }));
  return out;
};

/** The same as text, without the last line end. */
export const git = async (args: readonly string[], options: GitOptions = {}): Promise<string> =>
  (await gitBytes(args, options)).toString().replace(/\n$/, '');

const tooLong = (maxBytes: number): CoppiceError =>
  new CoppiceError('too_large', `the changes are a patch of more than ${formatBytes(maxBytes)}`, {
    hint: 'Copy large files out with `coppice cp`, or pull a directory below.',
  });

const failed = (
  args: readonly string[],
  error: NodeJS.ErrnoException & { stderr?: string },
): CoppiceError => {
  if (error.code === 'ENOENT')
    return new CoppiceError('unsupported', 'git is not installed on this machine', {
      hint: 'Install git: it makes the copies and patches.',
      cause: error,
    });
  const said = (error.stderr ?? error.message).trim().split('\n').slice(-3).join('; ');
  return new CoppiceError('conflict', `git ${args.find((word) => !word.startsWith('-'))} failed: ${said}`, {
    hint: 'Nothing was changed. Settle what git says, then run the command again.',
    cause: error,
  });
};
