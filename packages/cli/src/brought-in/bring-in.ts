import { lstat, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';
import { git } from './git.ts';

/** Where what was brought in lies, and from which commit; kept with the sandbox and with what grows from it. */
export const pathLabel = 'brought-in.path';
export const commitLabel = 'brought-in.commit';
/** The files as they came, for `pull` to compare with. */
export const broughtIn = 'brought-in';

export interface BringOptions {
  readonly copyIn?: readonly string[];
  readonly clone?: string;
}

interface Part {
  readonly directory: string;
  readonly path: string;
  /** The commit that it stands on, of a clone. */
  readonly commit: string | undefined;
}

const split = (text: string): { directory: string; path: string } => {
  const colon = text.lastIndexOf(':');
  if (colon <= 0 || !text.slice(colon + 1).startsWith('/'))
    return { directory: resolve(text), path: '/workspace' };
  return { directory: resolve(text.slice(0, colon)), path: text.slice(colon + 1) };
};

/** Looks at everything before a sandbox is made for it. */
export const planBringing = async ({ copyIn = [], clone }: BringOptions): Promise<Part[]> => {
  const parts: Part[] = copyIn.map((text) => ({ ...split(text), commit: undefined }));
  if (clone !== undefined) {
    const place = split(clone);
    parts.unshift({ ...place, commit: await git(['-C', place.directory, 'rev-parse', 'HEAD']) });
  }
  for (const { directory } of parts) {
    const found = await lstat(directory).catch(() => undefined);
    if (found?.isDirectory()) continue;
    throw new CoppiceError('invalid_argument', `${directory} is no directory of this machine`, {
      hint: 'Give a directory as DIR, or as DIR:/path/inside.',
    });
  }
  const paths = parts.map(({ path }) => path);
  if (new Set(paths).size < paths.length)
    throw new CoppiceError('invalid_argument', 'two directories would be brought in to the same place', {
      hint: 'Name another one for each: --copy-in DIR:/path',
    });
  return parts;
};

export const labelsOf = ([first]: readonly Part[]): Record<string, string> => {
  if (first === undefined) return {};
  const labels: Record<string, string> = { [pathLabel]: first.path };
  if (first.commit !== undefined) labels[commitLabel] = first.commit;
  return labels;
};

/** Copies what was asked for into a new sandbox, and keeps a snapshot of just that for `pull`, unless nothing will be pulled. */
export const bringIn = async (
  cli: Cli,
  sandbox: Sandbox,
  parts: readonly Part[],
  keepsBase = true,
): Promise<void> => {
  if (parts.length === 0) return;
  const { signal } = cli;
  for (const part of parts)
    await cli.out.during(`bringing in ${part.directory}`, async (progress) => {
      const onProgress = ({ bytes }: { bytes: number }) => progress.update({ done: bytes });
      if (part.commit === undefined)
        await sandbox.files.uploadDirectory(part.directory, part.path, { signal, onProgress });
      else
        await withClone(part, sandbox.name, (copy) =>
          sandbox.files.uploadDirectory(copy, part.path, { signal, onProgress }),
        );
    });
  const from = parts.map(({ directory }) => directory).join(', ');
  if (keepsBase)
    await sandbox.snapshot({ name: broughtIn, note: `as brought in from ${from}`.slice(0, 4096), signal });
  const clone = parts.find(({ commit }) => commit !== undefined);
  if (clone !== undefined && (await git(['-C', clone.directory, 'status', '--porcelain'])) !== '')
    cli.out.note(`${clone.directory} has changes that are not committed; the clone is without them`);
};

/** A clone on a branch of its own, without a way back to the original: that is not there in a sandbox. */
const withClone = async (
  { directory, commit = '' }: Part,
  name: string,
  work: (copy: string) => Promise<unknown>,
): Promise<void> => {
  const temporary = await mkdtemp(join(tmpdir(), 'coppice-clone-'));
  try {
    const copy = join(temporary, 'clone');
    await git(['clone', '--quiet', '--no-hardlinks', '--no-checkout', directory, copy]);
    await git(['-C', copy, 'checkout', '--quiet', '-B', `coppice/${name}`, commit]);
    await git(['-C', copy, 'remote', 'remove', 'origin']);
    await work(copy);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
};
