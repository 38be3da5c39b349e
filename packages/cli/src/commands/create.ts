import { addSandboxOptions, createBody, type SandboxOptions } from '../args/sandbox-options.ts';
import { findImage } from '../image-pull.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  addSandboxOptions(verb(program, 'create', 'Create and start a sandbox'), cli)
    .argument('[name]', 'its name; one is made up when it is left out')
    .addHelpText(
      'after',
      examples(
        'coppice create dev',
        'coppice create --image python:3.12-slim',
        'coppice create web --memory 1g --internet -e PORT=8080',
      ),
    )
    .action(async (name: string | undefined, options: SandboxOptions) => {
      if (options.image !== undefined) await findImage(cli, options.image);
      const sandbox = await cli.out.during('creating', () =>
        cli.coppice.sandboxes.create({ ...createBody(name, options), signal: cli.signal }),
      );
      cli.out.result(sandbox.info, () => sandbox.name);
    });
};
