import { formatAge, formatBytes, formatSize, plural } from '@coppice/console';
import type { Snapshot } from '@coppice/protocol';
import { referenceTo } from '../ui/reference.ts';
import { type DefineCommand, verb } from '../verb.ts';

interface Options {
  readonly project?: string;
  readonly all?: boolean;
}

const foldedLine = (folded: readonly Snapshot[]): string => {
  if (folded.length === 0) return '';
  const bytes = folded.reduce((sum, { used_bytes: own }) => sum + (own ?? 0), 0);
  return `… and ${plural(folded.length, 'automatic snapshot')} (${formatBytes(bytes)} own): --all`;
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'snapshots', 'List snapshots, of one sandbox or of all')
    .argument('[sandbox]', 'name or id')
    .option('--project <project>', 'only of this project')
    .option('-a, --all', 'on a terminal also those that were taken automatically')
    .action(async (ref: string | undefined, { project, all }: Options) => {
      const { signal } = cli;
      const snapshots =
        ref === undefined
          ? await cli.coppice.snapshots.list({ project, signal })
          : await cli.coppice.sandboxes.at(ref).snapshots({ signal });
      // Undo snapshots come by themselves, many of them: a person looks for those that somebody took.
      const folds = cli.out.columns !== undefined && !all;
      const folded = folds ? snapshots.filter(({ automatic }) => automatic) : [];
      const rows = (folds ? snapshots.filter(({ automatic }) => !automatic) : snapshots).map((snapshot) => [
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
      const heads = [
        ...['NAME', 'SANDBOX', 'KEEPS', 'SIZE', 'OWN', 'TAKEN', { head: 'TAGS', drop: 2 }],
        ...[{ head: 'ID', drop: 1 }, 'NOTE'],
      ];
      cli.out.result(snapshots, () => {
        const hasOnlyFolded = rows.length === 0 && folded.length > 0;
        const text = hasOnlyFolded
          ? ''
          : cli.out.table(heads, rows, 'No snapshots. Take one with `coppice snapshot SANDBOX`.');
        return [text, foldedLine(folded)].filter((line) => line !== '').join('\n');
      });
    });
};
