import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { extractFromProgram } from './extract-from-program.ts';
import type { ExtractOptions } from './extract-rootfs.ts';
import type { BuiltRootfs } from './image.ts';

/** Copies a directory as if it were an archive, so that one policy judges both. Mounts below it are not followed. */
export async function copyDirectoryRootfs(
  path: string,
  rootfs: string,
  options: ExtractOptions,
): Promise<BuiltRootfs> {
  await checkDirectory(path);
  const archive = ['--create', '--file=-', '--format=posix', '--numeric-owner', '--one-file-system'] as const;
  const { warnings, stderr } = await extractFromProgram(
    ['tar', ...archive, `--directory=${path}`, '--', '.'],
    rootfs,
    options,
    ({ exitCode, stderr }) => {
      if (exitCode === 0) return;
      if (exitCode === 1) {
        throw new CoppiceError(
          'conflict',
          `${path} changed while it was read: ${stderr.trim().slice(0, 500)}`,
          {
            hint: 'Nothing was kept. Stop what writes there, then import it again.',
          },
        );
      }
      throw new CoppiceError('invalid_argument', `${path} could not be read: ${stderr.trim().slice(0, 500)}`);
    },
  );
  const sockets = stderr.split('\n').filter((line) => line.includes('socket ignored')).length;
  const skipped = sockets === 0 ? [] : [`${sockets} sockets were left out: they have no meaning in an image`];
  return { source: { kind: 'directory', path }, warnings: [...warnings, ...skipped] };
}

async function checkDirectory(path: string): Promise<void> {
  const found = isAbsolute(path) ? await stat(path).catch(() => undefined) : undefined;
  if (found?.isDirectory() === true) return;
  throw new CoppiceError('invalid_argument', `${path} is not the absolute path of a directory`, {
    hint: 'Give the directory that holds bin, etc, usr and so on.',
  });
}
