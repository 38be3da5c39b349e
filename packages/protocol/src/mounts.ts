import { z } from 'zod';

/** As native/mounts/mounts.h has it. */
export const maxMounts = 8;

/** Nothing of the host is mounted here or below: a sandbox needs these for itself, or they are links in most images. */
const reservedTrees = [
  ...[
    '/bin',
    '/boot',
    '/dev',
    '/lib',
    '/lib32',
    '/lib64',
    '/libx32',
    '/proc',
    '/run',
    '/sbin',
    '/sys',
    '/tmp',
  ],
  ...['/var/lock', '/var/run'],
];
/** Nor exactly here: the sandbox itself is in them. */
const reservedPlaces = ['/', '/etc', '/usr', '/var'];

const isAtOrBelow = (path: string, top: string): boolean => path === top || path.startsWith(`${top}/`);

/** Without `.`, `..`, a doubled or a final slash, so that two of them are compared by their text. */
const plainPath = (most: number) =>
  z
    .string()
    .max(most)
    .regex(/^\/(?:[^/]+(?:\/[^/]+)*)?$/, 'must be an absolute path without a double or final slash')
    .refine((path) => !path.split('/').some((part) => part === '.' || part === '..'), 'holds . or ..')
    .refine((path) => !/[\u0000-\u001f\u007f]/.test(path), 'holds a control character');

/** Where a directory of the host may stand inside. */
export const mountPointSchema = plainPath(1024).refine(
  (path) => !reservedPlaces.includes(path) && !reservedTrees.some((top) => isAtOrBelow(path, top)),
  {
    error: ({ input }) =>
      `${String(input)} belongs to the sandbox itself; use a path such as /data or /srv/x`,
  },
);

export const mountPointsSchema = z.array(mountPointSchema).max(maxMounts);

/** A directory of the host that a sandbox shares. It is not part of snapshots, forks, diffs and merges. */
export const mountSchema = z.strictObject({
  /** A directory of the host; no part of its path may be a symbolic link. */
  host_path: plainPath(4096),
  /** Where it stands inside. */
  guest_path: mountPointSchema,
  read_only: z.boolean().default(false),
});
export type Mount = z.output<typeof mountSchema>;

export const mountsSchema = z
  .array(mountSchema)
  .max(maxMounts)
  .refine(
    (mounts) =>
      mounts.every(({ guest_path: one }, at) =>
        mounts.every(({ guest_path: other }, index) => index === at || !isAtOrBelow(one, other)),
      ),
    'two of them stand at the same path, or one inside another',
  );
