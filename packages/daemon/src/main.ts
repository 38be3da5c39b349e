import { existsSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { CoppiceError, errorKinds } from '@coppice/protocol';
import { type Logger, multistream, pino } from 'pino';
import type { DaemonOptions } from './compose/kernel.ts';
import { type Config, readConfig } from './config/config.ts';
import { Home } from './config/home.ts';
import { HomeLock } from './config/home-lock.ts';
import { checkMachine } from './config/machine-check.ts';
import { findPrograms } from './config/programs.ts';
import { Daemon } from './daemon.ts';
import { DaemonServer } from './daemon-server.ts';
import { LogFile } from './host/log-file.ts';
import { systemFailure } from './host/system-failure.ts';

const usage = `usage: coppice-daemon [--home DIR] [--port N] [--foreground] [--purge] [--restore-backup]

  --home DIR        where all of it lives (default: COPPICE_HOME, or /var/lib/coppice)
  --port N          listen there and not where config.json says; 0 takes any that is free
  --foreground      say on standard error what goes into the log
  --purge           end every sandbox of the home and remove the home, then exit
  --restore-backup  go back to the last good copy of the database`;

interface Options {
  readonly home: string;
  readonly port: number | undefined;
  readonly foreground: boolean;
  readonly purge: boolean;
  readonly restoreBackup: boolean;
}

function readPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port <= 65_535)) throw new Error(`--port ${text} is no port: 0 to 65535`);
  return port;
}

function parseOptions(args: readonly string[], env: NodeJS.ProcessEnv): Options | undefined {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        home: { type: 'string' },
        port: { type: 'string' },
        foreground: { type: 'boolean', default: false },
        purge: { type: 'boolean', default: false },
        'restore-backup': { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    if (values.help) return undefined;
    return {
      home: values.home ?? env.COPPICE_HOME ?? '/var/lib/coppice',
      port: values.port === undefined ? undefined : readPort(values.port),
      foreground: values.foreground,
      purge: values.purge,
      restoreBackup: values['restore-backup'],
    };
  } catch (cause) {
    throw new CoppiceError('invalid_argument', (cause as Error).message, { hint: usage, cause });
  }
}

function makeLog(home: Home, config: Config, foreground: boolean): Logger {
  const file = new LogFile(join(home.logDir, 'daemon.log'), config.log_max_mb * 1024 * 1024);
  const streams = foreground ? [{ stream: file }, { stream: process.stderr }] : [{ stream: file }];
  return pino({ level: config.log_level, base: { pid: process.pid } }, multistream(streams));
}

/** For the tests of crashes: what the file says at that moment. */
function faultsIn(file: string | undefined): (() => string | undefined) | undefined {
  if (file === undefined) return undefined;
  return () => (existsSync(file) ? readFileSync(file, 'utf8') : undefined);
}

/** Where this account's logins to registries are, and the programs that keep them. */
const accountOf = (env: NodeJS.ProcessEnv): DaemonOptions['account'] => ({
  home: homedir(),
  path: env.PATH ?? '/usr/local/bin:/usr/bin:/bin',
  dockerConfigDir: env.DOCKER_CONFIG ?? join(homedir(), '.docker'),
});

async function purge(home: Home, config: Config, log: Logger): Promise<void> {
  const quiet: Config = { ...config, warm_pool: 0, disks: { engine: 'auto' } };
  const programs = findPrograms(import.meta.dirname);
  const daemon = await Daemon.open({ home, config: quiet, programs, log, account: accountOf(process.env) });
  await daemon.purge();
  log.flush();
}

async function run(options: Options): Promise<void> {
  if (options.purge && !existsSync(options.home)) return;
  checkMachine();
  const home = Home.open(options.home);
  const lock = HomeLock.take(home.lockFile, home.directory);
  const { config, digest } = await readConfig(home.configFile, options.port);
  const log = makeLog(home, config, options.foreground);
  if (options.purge) {
    await purge(home, config, log);
    lock.release();
    await rm(home.directory, { recursive: true, force: true });
    return;
  }
  const stopAsked = Promise.withResolvers<string>();
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stopAsked.resolve(signal));
  const daemon = await Daemon.open({
    home,
    config,
    programs: findPrograms(import.meta.dirname),
    log,
    account: accountOf(process.env),
    faults: faultsIn(process.env.COPPICE_FAULTS),
    restoreBackup: options.restoreBackup,
  });
  const server = await DaemonServer.listen({ daemon, home, config, configDigest: digest, log }).catch(
    async (error: unknown) => {
      await daemon.close();
      throw error;
    },
  );
  log.info({ url: server.url, home: home.directory }, 'listening');
  const signal = await stopAsked.promise;
  log.info({ signal }, 'stopping; sandboxes go on');
  await server.close();
  await daemon.close();
  lock.release();
  log.flush();
}

/** A file of the home that this user, or an attribute of the file, does not let us use. */
function fileRefusal(error: unknown): CoppiceError | undefined {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code !== 'EACCES' && code !== 'EPERM') return undefined;
  return new CoppiceError('forbidden', message, {
    hint: 'Run it as root, and look whether the file is immutable (`lsattr`).',
    cause: error,
  });
}

function fail(error: unknown): never {
  const known = error instanceof CoppiceError ? error : (systemFailure(error) ?? fileRefusal(error));
  const text = known === undefined ? String((error as Error)?.stack ?? error) : known.message;
  process.stderr.write(`coppice-daemon: ${text}\n${known === undefined ? '' : `hint: ${known.hint}\n`}`);
  process.exit(errorKinds[known?.code ?? 'internal'].exitCode);
}

try {
  const options = parseOptions(process.argv.slice(2), process.env);
  if (options === undefined) process.stdout.write(`${usage}\n`);
  else await run(options);
  process.exit(0);
} catch (error) {
  fail(error);
}
