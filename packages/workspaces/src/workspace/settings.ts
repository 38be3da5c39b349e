import { readFileSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol/errors';
import { writeFileAtomically } from './atomic-file.ts';
import type { WorkspaceLayout } from './layout.ts';
import { checkTag } from './names.ts';
import { engineNames } from './snapshot-record.ts';

export interface WorkspaceSettings {
  /** `auto`: the engine that `init` found. */
  readonly default_engine: string;
  readonly default_tags: readonly string[];
  readonly output_format: 'text' | 'json';
  readonly auto_snapshot: boolean;
  readonly gc_keep_hours: number;
}

const defaultSettings: WorkspaceSettings = {
  default_engine: 'auto',
  default_tags: [],
  output_format: 'text',
  auto_snapshot: true,
  gc_keep_hours: 24,
};

const oneOf = (key: string, allowed: readonly string[], value: string): string => {
  if (allowed.includes(value)) return value;
  throw new CoppiceError('invalid_argument', `${key} cannot be ${JSON.stringify(value)}`, {
    hint: `Use one of: ${allowed.join(', ')}.`,
  });
};

const parsers: { readonly [Key in keyof WorkspaceSettings]: (value: string) => WorkspaceSettings[Key] } = {
  default_engine: (value) => oneOf('default_engine', ['auto', ...engineNames], value),
  default_tags: (value) => value.split(',').filter(Boolean).map(checkTag),
  output_format: (value) => oneOf('output_format', ['text', 'json'], value) as 'text' | 'json',
  auto_snapshot: (value) => oneOf('auto_snapshot', ['true', 'false'], value) === 'true',
  gc_keep_hours: (value) => {
    const hours = Number(value);
    if (value.trim() !== '' && Number.isFinite(hours) && hours >= 0) return hours;
    throw new CoppiceError(
      'invalid_argument',
      `gc_keep_hours must be a number of hours, not ${JSON.stringify(value)}`,
    );
  },
};

const isKey = (key: string): key is keyof WorkspaceSettings => Object.hasOwn(parsers, key);

export const checkSettingKey = (key: string): keyof WorkspaceSettings => {
  if (isKey(key)) return key;
  throw new CoppiceError('invalid_argument', `there is no setting ${JSON.stringify(key)}`, {
    hint: `The settings are: ${Object.keys(parsers).join(', ')}.`,
  });
};

export const readSettings = (layout: WorkspaceLayout): WorkspaceSettings => {
  let text: string;
  try {
    text = readFileSync(layout.settingsFile, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return defaultSettings;
    throw error;
  }
  try {
    const found = JSON.parse(text) as Record<string, unknown>;
    const settings = { ...defaultSettings, ...found };
    // As if each were set anew: what nobody could have set is damage.
    for (const key of Object.keys(parsers) as (keyof WorkspaceSettings)[]) {
      if (JSON.stringify(parsers[key](String(settings[key]))) !== JSON.stringify(settings[key]))
        throw new CoppiceError('invalid_argument', `${key} has a value of the wrong kind`);
    }
    return settings;
  } catch (cause) {
    throw new CoppiceError('corrupt', `${layout.settingsFile} is damaged: ${(cause as Error).message}`, {
      hint: 'Mend or delete it; `jvs doctor --repair` sets it aside.',
      cause,
    });
  }
};

export const writeSetting = (layout: WorkspaceLayout, key: string, value: string): WorkspaceSettings => {
  const known = checkSettingKey(key);
  const settings = { ...readSettings(layout), [known]: parsers[known](value) };
  writeFileAtomically(layout.settingsFile, `${JSON.stringify(settings, null, 2)}\n`);
  return settings;
};
