import { formatAge, formatBytes, formatCommand } from '@coppice/console';
import type { Job } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseWhole } from '../args/number.ts';
import { parseSignal } from '../args/signal.ts';
import { exitCodeOf } from '../exit-code.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly kill?: number;
  readonly wait?: number;
  readonly signal?: number;
}

const stateOf = (job: Job): string => {
  if (job.exit === null) return job.running ? 'running' : 'ended';
  if (job.exit.timed_out) return 'timed out';
  return job.exit.signal === null ? `exit ${job.exit.exit_code}` : `signal ${job.exit.signal}`;
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'jobs', 'List the background jobs of a sandbox, wait for one or end one')
    .argument('<sandbox>', 'name or id')
    .option('--kill <number>', 'signal this job and all it started', parseWhole)
    .option('--signal <signal>', 'signal to send with --kill (default: 15)', parseSignal)
    .option('--wait <number>', 'wait until this job ends and pass its exit code on', parseWhole)
    .addHelpText(
      'after',
      examples('coppice exec -d dev -- ./server', 'coppice jobs dev', 'coppice jobs dev --kill 1'),
    )
    .action(async (ref: string, options: Options) => {
      const { kill, wait, signal: number = 15 } = options;
      if (options.signal !== undefined && kill === undefined) {
        throw new CoppiceError('invalid_argument', '--signal says nothing without --kill', {
          hint: 'Say which job: `coppice jobs SANDBOX --kill NUMBER --signal KILL`.',
        });
      }
      if (kill !== undefined && wait !== undefined) {
        throw new CoppiceError('invalid_argument', '--kill and --wait are two commands', {
          hint: 'Give one of them, then the other.',
        });
      }
      const { jobs } = cli.coppice.sandboxes.at(ref);
      const { signal } = cli;
      if (kill !== undefined) {
        await jobs.kill(kill, number, { signal });
        cli.out.result({ job: kill, signal: number }, () => `sent signal ${number} to job ${kill}`);
      } else if (wait !== undefined) {
        const exit = await cli.out.during(`waiting for job ${wait}`, () => jobs.wait(wait, { signal }));
        cli.exitCode = exitCodeOf(exit);
        cli.out.result(exit, () => '');
      } else {
        const found = await jobs.list({ signal });
        const rows = found.map((job) => [
          String(job.id),
          stateOf(job),
          formatBytes(job.log_bytes),
          formatAge(job.started_at, Date.now()),
          formatCommand(job.command),
        ]);
        const whenEmpty = 'No jobs. Start one with `coppice exec --detach`.';
        cli.out.result(found, () =>
          cli.out.table(['JOB', 'STATE', 'LOG', 'STARTED', 'COMMAND'], rows, whenEmpty),
        );
      }
    });
};
