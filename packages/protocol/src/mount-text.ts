import { CoppiceError } from './errors.ts';
import type { Mount } from './mounts.ts';

/** Where a repository is, and commands start, unless a call says otherwise; a relative path starts there too. */
export const workDirectory = '/workspace';

/** A directory of the host as the one that commands start in. */
export const workspaceMount = (directory: string): Mount => ({
  host_path: directory,
  guest_path: workDirectory,
  read_only: false,
});

const writtenMount = /^(?<host>.+?):(?<guest>\/[^:]*)(?::(?<mode>ro|rw))?$/s;

/** `HOST:GUEST[:ro]`, as people write it. */
export const parseMount = (text: string, absolute: (path: string) => string = (path) => path): Mount => {
  const { host, guest, mode } = writtenMount.exec(text)?.groups ?? {};
  if (host === undefined || guest === undefined)
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not HOST:GUEST[:ro]`, {
      hint: 'Give a directory of the host and an absolute path inside, such as ./data:/data or ./data:/data:ro.',
    });
  return { host_path: absolute(host), guest_path: guest, read_only: mode === 'ro' };
};

/** The same, for people to read. */
export const formatMount = ({ host_path: host, guest_path: guest, read_only: readOnly }: Mount): string =>
  `${host}:${guest}${readOnly ? ':ro' : ''}`;
