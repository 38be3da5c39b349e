import { formatAge, formatBytes, formatSize } from '@coppice/console';
import { referenceTo } from '../ui/reference.ts';
import { table } from '../ui/table.ts';
import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'snapshots', 'List snapshots, of one sandbox or of all')
    .argument('[sandbox]', 'name or id')
    .option('--project <project>', 'only of this project')
    .action(async (ref: string | undefined, { project }: { readonly project?: string }) => {
      const { signal } = cli;
      const snapshots =
        ref === undefined
          ? await cli.coppice.snapshots.list({ project, signal })
          : await cli.coppice.sandboxes.at(ref).snapshots({ signal });
      const rows = snapshots.map((snapshot) => [
        snapshot.name,
        referenceTo({ project: snapshot.project, name: snapshot.sandbox_name }),
        snapshot.has_memory ? `with memory (${formatBytes(snapshot.memory_bytes ?? 0)})` : 'files',
        formatSize(snapshot.referenced_bytes),
        formatSize(snapshot.used_bytes),
        `${formatAge(snapshot.created_at, Date.now())}${snapshot.automatic ? ', automatic' : ''}`,
        snapshot.tags.join(','),
        snapshot.id,
        snapshot.note,
      ]);
      const heads = ['NAME', 'SANDBOX', 'KEEPS', 'SIZE', 'OWN', 'TAKEN', 'TAGS', 'ID', 'NOTE'];
      cli.out.result(snapshots, () =>
        table(heads, rows, 'No snapshots. Take one with `coppice snapshot SANDBOX`.'),
      );
    });
};
