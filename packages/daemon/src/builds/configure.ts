import { posix } from 'node:path';
import { signalNumber } from '@coppice/runtime';
import { badLine, type Instruction, readList, unsupportedLine } from './dockerfile/parse-dockerfile.ts';
import { rawWords, readPairs } from './dockerfile/words.ts';
import { type StageState, setEnv } from './stage-state.ts';

export interface Reader {
  readonly escapeWith: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** Puts variables in and takes quotes away. */
  readonly read: (text: string) => string;
}

const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$/;

/** What an instruction says about the processes of the image; none of these changes files. */
export function configure(state: StageState, instruction: Instruction, reader: Reader): void {
  const { keyword, rest, list, line } = instruction;
  const { config } = state;
  const { read, escapeWith, variables } = reader;
  const words = (): string[] => rawWords(rest, escapeWith).map(read);
  switch (keyword) {
    case 'ENV':
      for (const { name, value } of readPairs(rest, variables, escapeWith)) {
        if (!/^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name))
          throw badLine(line, `${name.slice(0, 60)} is no variable name`);
        setEnv(config, name, value);
      }
      return;
    case 'LABEL':
      config.Labels = { ...config.Labels };
      for (const { name, value } of readPairs(rest, variables, escapeWith)) config.Labels[name] = value;
      return;
    case 'WORKDIR':
      config.WorkingDir = posix.resolve(config.WorkingDir || '/', read(rest));
      return;
    case 'USER': {
      const user = read(rest);
      if (!userPattern.test(user)) throw badLine(line, `${JSON.stringify(user.slice(0, 60))} is no user`);
      config.User = user;
      return;
    }
    case 'EXPOSE':
      config.ExposedPorts = { ...config.ExposedPorts };
      for (const port of words()) {
        if (!/^\d{1,5}(?:-\d{1,5})?(?:\/(?:tcp|udp|sctp))?$/.test(port))
          throw badLine(line, `${port} is no port`);
        config.ExposedPorts[port.includes('/') ? port : `${port}/tcp`] = {};
      }
      return;
    case 'VOLUME':
      config.Volumes = { ...config.Volumes };
      for (const path of list?.map(read) ?? words()) config.Volumes[path] = {};
      return;
    case 'STOPSIGNAL': {
      const signal = read(rest);
      if (signalNumber(signal) === undefined) throw badLine(line, `${signal.slice(0, 20)} is no signal`);
      config.StopSignal = signal;
      return;
    }
    case 'SHELL':
      if (list === undefined || list.length === 0)
        throw badLine(line, 'SHELL is a JSON list: ["/bin/bash", "-c"]');
      state.shell = [...list];
      config.Shell = [...list];
      return;
    case 'CMD':
      config.Cmd = commandOf(state, instruction);
      state.ownCmd = true;
      return;
    case 'ENTRYPOINT':
      config.Entrypoint = commandOf(state, instruction);
      // The command of the image below was meant for its own entry point.
      if (!state.ownCmd) delete config.Cmd;
      return;
    case 'HEALTHCHECK':
      config.Healthcheck = healthcheckOf(state, instruction);
      return;
    default:
      throw unsupportedLine(line, keyword);
  }
}

const commandOf = ({ shell }: StageState, { list, rest }: Instruction): string[] =>
  list === undefined ? [...shell, rest] : [...list];

const unitNs: Readonly<Record<string, number>> = { ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };
const times: Readonly<Record<string, string>> = {
  interval: 'Interval',
  timeout: 'Timeout',
  'start-period': 'StartPeriod',
  'start-interval': 'StartInterval',
};

function healthcheckOf(
  { shell: _ }: StageState,
  { flags, rest, line }: Instruction,
): Record<string, unknown> {
  const [, kind = '', command = ''] = /^(\S+)\s*(.*)$/s.exec(rest) ?? [];
  if (kind.toUpperCase() === 'NONE') return { Test: ['NONE'] };
  if (kind.toUpperCase() !== 'CMD' || command === '')
    throw badLine(line, 'HEALTHCHECK is CMD with a command, or NONE');
  const list = readList(command);
  const check: Record<string, unknown> = {
    Test: list === undefined ? ['CMD-SHELL', command] : ['CMD', ...list],
  };
  for (const { name, value } of flags) {
    if (name === 'retries' && /^\d{1,6}$/.test(value)) check.Retries = Number(value);
    else if (times[name] !== undefined) check[times[name]] = durationNs(value, line);
    else throw badLine(line, `--${name}=${value} is no option of HEALTHCHECK`);
  }
  return check;
}

function durationNs(text: string, line: number): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map(([whole]) => whole).join('') !== text)
    throw badLine(line, `${text} is no duration such as 30s or 1m30s`);
  return Math.round(parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * unitNs[unit!]!, 0));
}
