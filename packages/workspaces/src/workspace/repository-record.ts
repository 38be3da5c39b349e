import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { writeFileAtomically } from './atomic-file.ts';
import type { WorkspaceLayout } from './layout.ts';
import { type EngineName, isEngineName } from './snapshot-record.ts';

export const formatVersion = 1;

/** The file that makes a directory a workspace. */
export interface RepositoryRecord {
  readonly format_version: number;
  readonly repo_id: string;
  readonly created_at: string;
  readonly engine: EngineName;
  readonly requested_engine: EngineName | null;
}

const isRecord = (value: unknown): value is RepositoryRecord => {
  const { format_version, repo_id, created_at, engine, requested_engine } = (value ?? {}) as Record<
    string,
    unknown
  >;
  return (
    Number.isInteger(format_version) &&
    typeof repo_id === 'string' &&
    /^[0-9a-f-]{36}$/.test(repo_id) &&
    typeof created_at === 'string' &&
    isEngineName(engine) &&
    (requested_engine === null || isEngineName(requested_engine))
  );
};

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

const readIfThere = (path: string): string => {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
};

export const readRepository = ({ repositoryFile, root }: WorkspaceLayout): RepositoryRecord => {
  const found = parse(readIfThere(repositoryFile));
  if (!isRecord(found)) {
    throw new CoppiceError('corrupt', `${repositoryFile} cannot be read`, {
      hint: 'Run `jvs doctor --repair`: it writes that file again.',
    });
  }
  if (found.format_version !== formatVersion) {
    throw new CoppiceError(
      'unsupported',
      `the workspace ${root} has format ${found.format_version}; this program knows ${formatVersion}`,
      { hint: 'Use the version of jvs that made it.' },
    );
  }
  return found;
};

export const writeRepository = ({ repositoryFile }: WorkspaceLayout, record: RepositoryRecord): void =>
  writeFileAtomically(repositoryFile, `${JSON.stringify(record, null, 2)}\n`);

/** As the first line of the log tells it; what that does not tell is new. */
export const rebuildRepository = (layout: WorkspaceLayout, engine: EngineName): RepositoryRecord => {
  const [line = ''] = readIfThere(layout.logFile).split('\n', 1);
  const { at, data } = (parse(line) ?? {}) as { at?: string; data?: { repo_id?: string; engine?: string } };
  const told = {
    format_version: formatVersion,
    repo_id: data?.repo_id,
    created_at: at,
    engine: data?.engine,
    requested_engine: null,
  };
  if (isRecord(told)) return told;
  return {
    format_version: formatVersion,
    repo_id: crypto.randomUUID(),
    created_at: new Date().toISOString(),
    engine,
    requested_engine: null,
  };
};
