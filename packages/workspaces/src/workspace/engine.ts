import { CoppiceError } from '@coppice/protocol/errors';
import type { TreeProgram } from '../trees/tree-program.ts';
import { type EngineName, engineNames, isEngineName } from './snapshot-record.ts';

const aliases: Readonly<Record<string, EngineName>> = { juicefs: 'juicefs-clone', reflink: 'reflink-copy' };

export const parseEngine = (name: string): EngineName => {
  const full = aliases[name] ?? name;
  if (isEngineName(full)) return full;
  throw new CoppiceError('invalid_argument', `there is no engine ${JSON.stringify(name)}`, {
    hint: `The engines are: ${engineNames.join(', ')}.`,
  });
};

export interface EngineOffer {
  readonly filesystem: string;
  /** What can be had, best first. */
  readonly engines: readonly EngineName[];
  /** Why the others cannot. */
  readonly lacks: Readonly<Partial<Record<EngineName, string>>>;
}

/** What the filesystem below a directory offers. `scratch` is a directory on it for the probe's files. */
export const probeEngines = (
  program: TreeProgram,
  directory: string,
  scratch: string,
  mountsFile: string | undefined,
): Promise<EngineOffer> =>
  program.request<EngineOffer>('probe', { dir: directory, scratch, mounts: mountsFile });
