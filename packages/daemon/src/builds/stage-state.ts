import { createHash } from 'node:crypto';
import type { ConfigSection } from '@coppice/runtime';

/** Files at one point of a build. What has the same key holds the same files. */
export interface Position {
  readonly imageId: string;
  readonly imageName: string;
  /** What was changed since the image; none where nothing was. */
  readonly snapshotId: string | undefined;
  readonly key: string;
}

interface BuildHistory {
  readonly created: string;
  readonly created_by: string;
  readonly changesFiles: boolean;
}

/** What a stage has come to. */
export interface StageState {
  position: Position;
  config: ConfigSection;
  shell: string[];
  readonly history: BuildHistory[];
  /** Declared with ARG so far. */
  readonly args: Record<string, string | undefined>;
  /** Whether CMD is of this build, and not of the image below. */
  ownCmd: boolean;
}

/** Forty digits: short enough for a tag of a snapshot. */
export const keyOf = (...parts: unknown[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 40);

export const envOf = ({ config }: StageState): Record<string, string> => {
  const env: Record<string, string> = {};
  for (const line of config.Env ?? []) {
    const equals = line.indexOf('=');
    if (equals > 0) env[line.slice(0, equals)] = line.slice(equals + 1);
  }
  return env;
};

export const setEnv = (config: ConfigSection, name: string, value: string): void => {
  const others = (config.Env ?? []).filter((line) => !line.startsWith(`${name}=`));
  config.Env = [...others, `${name}=${value}`];
};
