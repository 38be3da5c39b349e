import { defaultProject } from '@coppice/protocol';
import { addSandboxOptions, createBody, type SandboxOptions } from '../args/sandbox-options.ts';
import { bringIn, labelsOf, planBringing } from '../brought-in/bring-in.ts';
import { findImage } from '../image-pull.ts';
import { referenceTo } from '../ui/reference.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  addSandboxOptions(verb(program, 'create', 'Create and start a sandbox'), cli)
    .argument('[name]', 'its name; one is made up when it is left out')
    .addHelpText(
      'after',
      examples(
        'coppice create dev',
        'coppice create --image python:3.12-slim',
        'coppice create dev --clone ~/src/app',
        'coppice create web --memory 1g --internet -e PORT=8080',
      ),
    )
    .action(async (name: string | undefined, options: SandboxOptions) => {
      const parts = await planBringing(options);
      if (options.image !== undefined) await findImage(cli, options.image);
      const sandbox = await cli.out.during('creating', () =>
        cli.coppice.sandboxes.create({ ...createBody(name, options, labelsOf(parts)), signal: cli.signal }),
      );
      try {
        await bringIn(cli, sandbox, parts);
      } catch (error) {
        // Nothing half done: a sandbox without what it was made for is of no use.
        await sandbox.destroy();
        throw error;
      }
      if (sandbox.memoryNotice !== undefined) cli.out.note(sandbox.memoryNotice);
      cli.out.result(sandbox.info, () =>
        referenceTo({ project: options.project ?? defaultProject, name: sandbox.name }),
      );
    });
};
