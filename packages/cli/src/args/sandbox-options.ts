import { resolve } from 'node:path';
import type { Mount, RouteBody } from '@coppice/protocol';
import { parseMount, workspaceMount } from '@coppice/protocol/mount-text';
import { type Command, Option } from 'commander';
import type { Cli } from '../cli.ts';
import { parseDurationSeconds } from './duration.ts';
import { collect, collectEnv, collectLabels } from './key-value.ts';
import { addNetworkOptions, type NetworkOptions, networkPatch } from './network-options.ts';
import { parseNumber, parseWhole } from './number.ts';
import { parseMegabytes } from './size.ts';

export interface SandboxOptions extends NetworkOptions {
  readonly image?: string;
  readonly project?: string;
  readonly from?: string;
  readonly driver?: 'container' | 'gvisor';
  readonly cpus?: number;
  readonly memory?: number;
  readonly disk?: number;
  readonly pids?: number;
  readonly env?: Record<string, string>;
  readonly label?: Record<string, string>;
  readonly idleTimeout?: number;
  readonly idleAction?: 'pause' | 'stop';
  readonly maxLifetime?: number;
  readonly workspace?: string;
  readonly mount?: readonly string[];
  readonly copyIn?: string[];
  readonly clone?: string;
}

export const addLimitOptions = (command: Command): Command =>
  command
    .option('--cpus <number>', 'processors it may use', parseNumber)
    .option('-m, --memory <size>', 'memory, such as 512m or 2g', parseMegabytes)
    .option('--disk <size>', 'disk, such as 10g', parseMegabytes)
    .option('--pids <number>', 'processes and threads', parseWhole);

/** What a new sandbox is like: the same for `create` and `run`. */
export const addSandboxOptions = (command: Command, cli: Cli): Command =>
  addNetworkOptions(
    addLimitOptions(
      command
        .option('-i, --image <image>', 'image to start from, pulled if it is not here (default: host)')
        .option('--project <project>', 'project that it belongs to (default: default)')
        .option('--from <snapshot>', 'grow it from a snapshot or checkpoint')
        .addOption(new Option('--driver <driver>', 'what isolates it').choices(['container', 'gvisor'])),
    )
      .option(
        '-e, --env <key=value>',
        'variable for every process in it (repeatable)',
        collectEnv(cli.io.env),
      )
      .option('-l, --label <key=value>', 'label to find it by (repeatable)', collectLabels)
      .option('--idle-timeout <time>', 'sleep after this long without use', parseDurationSeconds)
      .addOption(new Option('--idle-action <action>', 'what sleep means').choices(['pause', 'stop']))
      .option('--max-lifetime <time>', 'destroy it after this long', parseDurationSeconds)
      .option(
        '--copy-in <dir[:path]>',
        'copy a directory of this machine in (default path: /workspace; repeatable)',
        collect,
      )
      .option('--clone <dir[:path]>', 'clone a repository of this machine in, on a branch of its own')
      .option(
        '--workspace <dir>',
        'mount a directory of this machine at /workspace: shared, and not part of snapshots',
      )
      .option(
        '--mount <host:guest[:ro]>',
        'mount a directory of this machine at a path inside, likewise; ro: read-only (repeatable)',
        collect,
      ),
  );

const mountsOf = ({ workspace, mount = [] }: SandboxOptions): Mount[] | undefined => {
  const asked = mount.map((text) => parseMount(text, resolve));
  if (workspace !== undefined) asked.unshift(workspaceMount(resolve(workspace)));
  return asked.length === 0 ? undefined : asked;
};

export const createBody = (
  name: string | undefined,
  options: SandboxOptions,
  labels: Record<string, string> = {},
): RouteBody<'createSandbox'> => {
  const { image, from, driver, cpus, memory, disk, pids, env } = options;
  const asked = { ...labels, ...options.label };
  const network = networkPatch(options);
  const body: RouteBody<'createSandbox'> = {
    name,
    project: options.project,
    image,
    from,
    driver,
    cpus,
    memory_mb: memory,
    disk_mb: disk,
    pids,
    env,
    labels: Object.keys(asked).length === 0 ? undefined : asked,
    network: Object.keys(network).length === 0 ? undefined : network,
    idle_timeout_s: options.idleTimeout,
    idle_action: options.idleAction,
    max_lifetime_s: options.maxLifetime,
    mounts: mountsOf(options),
  };
  return body;
};
