import module from 'node:module';
import { CoppiceError } from '@coppice/protocol/errors';
import { describeError } from '../failure.ts';
import { runJvs } from './run.ts';

module.enableCompileCache();

// A reader that went away (`jvs history | head -1`) is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

const currentDirectory = (): string => {
  try {
    return process.cwd();
  } catch (cause) {
    throw new CoppiceError('not_found', 'the current directory is gone', {
      hint: 'Go to one that exists with cd.',
      cause,
    });
  }
};

try {
  const { env, stdin, stdout, stderr } = process;
  process.exitCode = await runJvs(process.argv.slice(2), {
    cwd: currentDirectory(),
    env,
    stdin,
    stdout,
    stderr,
  });
} catch (error) {
  const { text, exitCode } = describeError(error);
  process.stderr.write(`jvs: ${text}\n`);
  process.exitCode = exitCode;
}
