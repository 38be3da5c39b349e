import { plural } from '@coppice/console';
import { expandSandboxes, expandSnapshots } from '../args/pattern.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const isSnapshot = (ref: string): boolean => /^sn_[0-9a-z]{26}$/.test(ref) || ref.includes(':');

export const define: DefineCommand = (program, cli) => {
  verb(program, 'rm', 'Destroy sandboxes with their disks (their snapshots stay), or delete snapshots')
    .argument(
      '<ref...>',
      "sandboxes by name or id; snapshots by id or as sandbox:snapshot; * and ? stand for letters: 'dev-*'",
    )
    .option('--snapshots', 'delete the snapshots of the sandboxes too')
    .addHelpText(
      'after',
      examples(
        'coppice rm dev',
        'coppice rm dev --snapshots',
        'coppice rm dev:baseline',
        "coppice rm 'dev-fork-*'",
        "coppice rm 'dev:*'",
      ),
    )
    .action(async (given: string[], options: { readonly snapshots?: boolean }) => {
      const refs = [
        ...(await expandSandboxes(
          cli,
          given.filter((ref) => !isSnapshot(ref)),
        )),
        ...(await expandSnapshots(cli, given.filter(isSnapshot))),
      ];
      const removed: string[] = [];
      await cli.out.during('removing', async () => {
        const results = await Promise.allSettled(
          refs.map(async (ref) => {
            const { signal } = cli;
            if (isSnapshot(ref)) await cli.coppice.snapshots.delete(ref, { signal });
            else {
              const snapshots = options.snapshots ? 'delete' : 'keep';
              const left = await cli.coppice.sandboxes.at(ref).destroy({ snapshots, signal });
              if (left.snapshots.length > 0)
                cli.out.note(
                  `${plural(left.snapshots.length, 'snapshot')} of ${ref} ${left.snapshots.length === 1 ? 'stays' : 'stay'}: ${left.snapshots.map(({ name }) => name).join(', ')}`,
                );
            }
            removed.push(ref);
          }),
        );
        const failed = results.find((result) => result.status === 'rejected');
        if (failed !== undefined) {
          if (removed.length > 0) cli.out.note(`removed ${removed.join(', ')}`);
          throw failed.reason;
        }
      });
      cli.out.result({ removed: refs }, () => refs.map((ref) => `removed ${ref}`).join('\n'));
    });
};
