import { parseDurationMs } from '../args/duration.ts';
import { expandSandboxes } from '../args/pattern.ts';
import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'stop', 'Stop a sandbox: its processes end, its disk stays')
    .argument('<sandbox...>', "names or ids; * and ? stand for letters: 'dev-*'")
    .option('--grace <time>', 'how long they may take to end by themselves (default: 5s)', parseDurationMs)
    .action(async (given: string[], { grace }: { readonly grace?: number }) => {
      const refs = await expandSandboxes(cli, given);
      const body = grace === undefined ? {} : { grace_s: grace / 1000 };
      const sandboxes = await cli.out.during('stopping', () =>
        Promise.all(refs.map((ref) => cli.coppice.sandboxes.at(ref).stop({ ...body, signal: cli.signal }))),
      );
      cli.out.result(
        sandboxes.map(({ info }) => info),
        () => sandboxes.map(({ name }) => `stopped ${name}`).join('\n'),
      );
    });
};
