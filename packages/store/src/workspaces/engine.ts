import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import type { TreeProgram } from '../trees/tree-program.ts';
import { juicefsMountOf } from './juicefs.ts';
import { type EngineName, engineNames } from './snapshot-record.ts';

export interface EngineChoice {
  readonly engine: EngineName;
  /** What was asked for, when it could not be had. */
  readonly requested: EngineName | null;
  /** Why not. */
  readonly reason: string | null;
}

const aliases: Readonly<Record<string, EngineName>> = { juicefs: 'juicefs-clone', reflink: 'reflink-copy' };

export const parseEngine = (name: string): EngineName => {
  const full = aliases[name] ?? name;
  if ((engineNames as readonly string[]).includes(full)) return full as EngineName;
  throw new CoppiceError('invalid_argument', `there is no engine ${JSON.stringify(name)}`, {
    hint: `The engines are: ${engineNames.join(', ')}.`,
  });
};

/** Best first, of what the filesystem below a directory offers. `scratch` is a directory on it for the probe's files. */
export const probeEngines = async (
  program: TreeProgram,
  directory: string,
  scratch: string,
  mountsFile: string,
): Promise<{ filesystem: string; engines: EngineName[] }> => {
  const probe = await program.request<{ filesystem: string; reflink: boolean }>('probe', {
    dir: directory,
    scratch,
  });
  const juicefs = juicefsMountOf(directory, readFileSync(mountsFile, 'utf8')) !== undefined;
  const engines: EngineName[] = [];
  if (probe.filesystem === 'btrfs') engines.push('btrfs');
  if (juicefs) engines.push('juicefs-clone');
  if (probe.reflink) engines.push('reflink-copy');
  engines.push('copy');
  return { filesystem: juicefs ? 'juicefs' : probe.filesystem, engines };
};

const reasons: Readonly<Record<EngineName, string>> = {
  btrfs: 'the directory is not on btrfs',
  'juicefs-clone': 'the directory is not on a JuiceFS mount with the `juicefs` command on PATH',
  'reflink-copy': 'the filesystem cannot share blocks between files',
  copy: '',
};

/** The engine that was asked for where it can be had, else the best there is: never silently. */
export const chooseEngine = (asked: EngineName | null, possible: readonly EngineName[]): EngineChoice => {
  const best = possible[0] ?? 'copy';
  if (!asked) return { engine: best, requested: null, reason: null };
  if (possible.includes(asked)) return { engine: asked, requested: null, reason: null };
  return { engine: best, requested: asked, reason: reasons[asked] };
};

export const downgradeNotice = (choice: EngineChoice): string | undefined =>
  choice.requested
    ? `the engine ${choice.requested} cannot be used here (${choice.reason}): using ${choice.engine} instead`
    : undefined;
