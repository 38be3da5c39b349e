import { once } from 'node:events';
import { CoppiceError } from '@coppice/protocol/errors';
import { parseWhole } from '../args/number.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface Options {
  readonly follow?: boolean;
  readonly cursor?: number;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'logs', 'Show the log of a background job')
    .argument('<sandbox>', 'name or id')
    .argument('[job]', 'number of the job (default: the newest)', parseWhole)
    .option('-f, --follow', 'go on until the job ends')
    .option('--cursor <number>', 'start at this place of the log', parseWhole)
    .action(async (ref: string, given: number | undefined, { follow, cursor = 0 }: Options) => {
      const { jobs } = cli.coppice.sandboxes.at(ref);
      const { signal } = cli;
      const job = given ?? (await jobs.list({ signal })).at(-1)?.id;
      if (job === undefined) {
        throw new CoppiceError('not_found', `sandbox ${ref} has no jobs`, {
          hint: `Start one: coppice exec --detach ${ref} -- COMMAND`,
        });
      }
      if (cli.out.isJson) {
        cli.out.result(await jobs.read(job, { cursor, signal }), () => '');
        return;
      }
      const chunks = follow ? jobs.follow(job, { cursor, signal }) : jobs.history(job, { cursor, signal });
      for await (const { stream, data } of chunks) {
        const target = cli.io[stream];
        if (!target.write(data)) await once(target, 'drain');
      }
    });
};
