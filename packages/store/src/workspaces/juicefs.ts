import { accessSync, constants } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';

const onPath = (program: string): boolean =>
  (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

/** The JuiceFS mount that holds a directory, when the command that clones on it is there too. */
export const juicefsMountOf = (directory: string, mounts: string): string | undefined => {
  const path = resolve(directory);
  const holding = mounts
    .split('\n')
    .map((line) => line.split(' '))
    .map(([, point = '', type = '']) => ({ point: point.replaceAll('\\040', ' '), type }))
    .filter(({ point }) => point && (path === point || point === '/' || path.startsWith(`${point}/`)))
    .reduce<{ point: string; type: string } | undefined>(
      (longest, mount) => (longest && longest.point.length > mount.point.length ? longest : mount),
      undefined,
    );
  return holding?.type.includes('juicefs') && onPath('juicefs') ? holding.point : undefined;
};

/** Clones metadata only. The destination must not exist: JuiceFS refuses one that does. */
export const juicefsClone = async (from: string, to: string): Promise<void> => {
  // Loaded when it is used: most workspaces are elsewhere.
  const { execFile } = process.getBuiltinModule('node:child_process');
  const { promisify } = process.getBuiltinModule('node:util');
  try {
    await promisify(execFile)('juicefs', ['clone', '-p', from, to]);
  } catch (cause) {
    const { stderr = '', message } = cause as Error & { stderr?: string };
    throw new CoppiceError('unsupported', `\`juicefs clone\` failed: ${stderr.trim() || message}`, { cause });
  }
};
