import type { PeerRoot } from './peer-root.ts';

/** The namespaces that a sandbox has, over the same root. */
export const bwrapCommand = (root: PeerRoot, ...command: string[]): string[] => [
  ...['bwrap', '--unshare-all', '--uid', '0', '--gid', '0', '--die-with-parent', '--hostname', 'peer'],
  ...['--bind', root.path, '/', '--proc', '/proc', '--dev', '/dev', '--tmpfs', '/run'],
  ...command,
];
