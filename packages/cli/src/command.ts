import { asInterrupted, describeError } from '@coppice/console';
import { Cli, type Io } from './cli.ts';
import { Interruption, onInterruption } from './interruption.ts';
import { runProgram } from './program.ts';
import { painter } from './ui/text.ts';

/** The whole of one call of the command: what it prints, and the exit code it leaves. */
export const main = async (argv: readonly string[]): Promise<void> => {
  const interrupted = new AbortController();
  const cli = new Cli(process, interrupted.signal);

  const leave = ({ exitCode }: Interruption): never => {
    if (cli.leftBehind !== undefined) process.stderr.write(`${cli.leftBehind}\n`);
    process.exit(exitCode);
  };
  onInterruption((interruption) => {
    setTimeout(() => leave(interruption), cli.graceMs).unref();
    interrupted.abort(interruption);
  }, leave);
  // A reader that went away (`coppice ls | head -1`) is no failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(cli.exitCode);
    throw error;
  });

  // What is wrong can be said to nobody then; the exit code still says it.
  process.stderr.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });

  try {
    await runProgram(cli, argv);
    process.exitCode = cli.exitCode;
  } catch (error) {
    const { text, json, exitCode } = describeError(interrupted.signal.aborted ? asInterrupted(error) : error);
    process.stderr.write(
      (cli.isConfigured ? cli.out.isJson : seemsToAskForJson(argv))
        ? `${JSON.stringify(json)}\n`
        : `${colouredFailure(text, cli.io)}\n`,
    );
    process.exitCode = Interruption.of(interrupted.signal)?.exitCode ?? exitCode;
  } finally {
    cli.close();
    // Input that nobody ends must not keep a finished command alive.
    process.stdin.destroy();
  }
};

/** The two words that begin its lines, on a terminal. */
const colouredFailure = (text: string, { stderr, env }: Io): string => {
  const paint = painter(stderr, env);
  return text
    .replace(/^error:/, (word) => paint('red', word))
    .replace(/^hint:/m, (word) => paint('cyan', word));
};

/** Of a command line that cannot be understood; of one that can, `--json` may be a word of what runs in the sandbox. */
const seemsToAskForJson = (argv: readonly string[]): boolean => {
  const end = argv.indexOf('--');
  return (end < 0 ? argv : argv.slice(0, end)).includes('--json');
};
