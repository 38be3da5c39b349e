import { parseDurationMs } from '../args/duration.ts';
import { collect } from '../args/key-value.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

interface Options {
  readonly image?: string;
  readonly git?: string;
  readonly run?: readonly string[];
  readonly timeout?: number;
  readonly internet?: boolean;
}

export const define: DefineCommand = (program, cli) => {
  verb(program, 'prepare', 'Create a sandbox, set it up and snapshot it as golden, in one call')
    .argument('<name>', 'name of the sandbox; where it is there already, nothing is run')
    .option('--image <image>', 'image to create it from')
    .option('--git <url>', 'clone this repository into /workspace first')
    .option('--run <command>', 'shell command to run in /workspace; may be given again', collect)
    .option('--timeout <time>', 'for each command (default: 5m)', parseDurationMs)
    .option('--internet', 'allow the internet, during the set-up and after it')
    .addHelpText(
      'after',
      examples("coppice prepare gold --git https://github.com/user/app --internet --run 'npm ci'"),
    )
    .action(async (name: string, { image, git, run = [], timeout, internet }: Options) => {
      const { sandbox, snapshot, reused } = await cli.out.during(`preparing ${name}`, (progress) =>
        cli.coppice.sandboxes.prepare(name, {
          commands: [...run],
          allow_internet: internet === true,
          ...(image === undefined ? {} : { image }),
          ...(git === undefined ? {} : { git_url: git }),
          ...(timeout === undefined ? {} : { timeout_ms: timeout }),
          onProgress: (detail) => progress.update({ done: 0, detail }),
          signal: cli.signal,
        }),
      );
      const what = reused ? 'was there already' : 'is ready';
      cli.out.result(
        { sandbox: sandbox.info, snapshot, reused },
        () => `${sandbox.name} ${what}, with the snapshot ${sandbox.name}:${snapshot.name}`,
      );
    });
};
