import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';

export interface Mount {
  readonly point: string;
  readonly type: string;
  readonly source: string;
}

const unescapeOctal = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));

/** What this process sees mounted exactly there, the topmost first. */
export const mountsAt = async (directory: string): Promise<Mount[]> => {
  const table = await readFile('/proc/self/mountinfo', 'latin1');
  const point = Buffer.from(directory).toString('latin1');
  const mounts: Mount[] = [];
  for (const line of table.split('\n')) {
    const [before, after] = line.split(' - ');
    if (before === undefined || after === undefined) continue;
    const fields = before.split(' ');
    if (unescapeOctal(fields[4] ?? '') !== point) continue;
    const [type = '', source = ''] = after.split(' ');
    mounts.unshift({ point: directory, type, source });
  }
  return mounts;
};

/** Loop devices whose content is this file. */
export const loopDevicesOf = async (file: string): Promise<string[]> => {
  const path = await realpath(file).catch(() => file);
  const devices: string[] = [];
  for (const name of await readdir('/sys/block')) {
    if (!name.startsWith('loop')) continue;
    const backing = await readFile(join('/sys/block', name, 'loop/backing_file'), 'utf8').catch(() => '');
    if (backing.trimEnd() === path || backing.trimEnd() === `${path} (deleted)`) devices.push(`/dev/${name}`);
  }
  return devices;
};

export const exists = async (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false;
      throw error;
    },
  );
