import { constants } from 'node:os';
import { CoppiceError } from '@coppice/protocol';
import type { ImageConfigFile } from './image-manifest.ts';

/** What an image says about the processes that run in it. */
export interface ImageSettings {
  readonly env: Readonly<Record<string, string>>;
  readonly entrypoint: readonly string[];
  readonly cmd: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  /** As `8080/tcp`. */
  readonly exposedPorts: readonly string[];
  readonly user?: string;
  readonly workingDir?: string;
  /** As `SIGQUIT`, `SIGRTMIN+3` or a number. */
  readonly stopSignal?: string;
}

const variablePattern = /^[A-Za-z_][A-Za-z0-9_]{0,255}$/;
const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$/;

/** The first real-time signal that programs may use, as glibc and musl number them on Linux. */
const firstRealTime = 34;
const lastSignal = 64;

/** The number of a signal that an image names; undefined where there is no such signal. */
export const signalNumber = (text: string): number | undefined => {
  const name = text.toUpperCase();
  const realTime = /^(?:SIG)?RT(MIN(?:\+(\d{1,2}))?|MAX(?:-(\d{1,2}))?)$/.exec(name);
  const number = /^\d{1,2}$/.test(name)
    ? Number(name)
    : realTime?.[1]?.startsWith('MIN')
      ? firstRealTime + Number(realTime[2] ?? 0)
      : realTime
        ? lastSignal - Number(realTime[3] ?? 0)
        : constants.signals[`SIG${name.replace(/^SIG/, '')}` as NodeJS.Signals];
  return number !== undefined && number >= 1 && number <= lastSignal ? number : undefined;
};

/** Refuses what no process could be given. Variables whose names no shell could write are left out, as they always were. */
export function readSettings({ config }: ImageConfigFile): ImageSettings {
  const env: Record<string, string> = {};
  for (const line of config?.Env ?? []) {
    const equals = line.indexOf('=');
    const name = equals < 0 ? line : line.slice(0, equals);
    if (variablePattern.test(name) && !line.includes('\0'))
      env[name] = equals < 0 ? '' : line.slice(equals + 1);
  }
  const texts = [...(config?.Entrypoint ?? []), ...(config?.Cmd ?? []), config?.WorkingDir ?? ''];
  if (texts.some((text) => text.includes('\0') || text.length > 1 << 20)) throw malformed('its command');
  const user = config?.User ?? '';
  if (user !== '' && !userPattern.test(user))
    throw malformed(`its user ${JSON.stringify(user.slice(0, 80))}`);
  const stopSignal = config?.StopSignal ?? '';
  if (stopSignal !== '' && signalNumber(stopSignal) === undefined) throw malformed('its stop signal');
  const workingDir = config?.WorkingDir ?? '';
  return {
    env,
    entrypoint: config?.Entrypoint ?? [],
    cmd: config?.Cmd ?? [],
    labels: config?.Labels ?? {},
    exposedPorts: Object.keys(config?.ExposedPorts ?? {}),
    ...(user === '' ? {} : { user }),
    ...(workingDir === '' ? {} : { workingDir: workingDir.startsWith('/') ? workingDir : `/${workingDir}` }),
    ...(stopSignal === '' ? {} : { stopSignal }),
  };
}

const malformed = (what: string): CoppiceError =>
  new CoppiceError(
    'invalid_argument',
    `the image says something about ${what} that no process could be given`,
  );
