import { CoppiceError } from '@coppice/protocol/errors';
import { parseDurationMs } from '../args/duration.ts';
import { parsePort } from '../args/number.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly port?: number[];
  readonly timeout?: number;
}

const collectPorts = (text: string, before: number[] = []): number[] => [...before, parsePort(text)];

export const define: DefineCommand = (program, cli) => {
  verb(program, 'wait', 'Wait until something in a sandbox listens on a port')
    .argument('<sandbox>', 'name or id')
    .option('-p, --port <port>', 'port inside (repeatable: all of them)', collectPorts)
    .option('--timeout <time>', 'give up after this long (default: 1m)', parseDurationMs)
    .addHelpText(
      'after',
      examples('coppice wait dev --port 8080', 'coppice wait db --port 5432 --timeout 2m'),
    )
    .action(async (ref: string, { port: ports = [], timeout }: Options) => {
      if (ports.length === 0)
        throw new CoppiceError('invalid_argument', 'what to wait for is missing', {
          hint: 'Name a port: `coppice wait SANDBOX --port 8080`. For a job: `coppice jobs SANDBOX --wait JOB`.',
        });
      const sandbox = cli.coppice.sandboxes.at(ref);
      const reached = await cli.out.during('waiting', () =>
        Promise.all(
          ports.map((port) => sandbox.waitForPort(port, { timeout_ms: timeout, signal: cli.signal })),
        ),
      );
      cli.out.result(reached, () =>
        reached.map(({ port, waited_ms }) => `port ${port} is open (${waited_ms} ms)`).join('\n'),
      );
    });
};
