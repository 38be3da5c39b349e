import { presets, type RouteBody } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Command } from 'commander';
import { collect } from './key-value.ts';
import { collectPorts } from './number.ts';

export interface NetworkOptions {
  readonly internet?: boolean;
  readonly interSandbox?: boolean;
  readonly allowPort?: number[];
  readonly allow?: string[];
  readonly deny?: string[];
  readonly hostPort?: number[];
  readonly ask?: boolean;
}

export const addNetworkOptions = (command: Command): Command =>
  command
    .option('--internet', 'let it reach the internet')
    .option('--inter-sandbox', 'let it reach other sandboxes')
    .option('--allow-port <port>', 'reach only these ports (repeatable); names need 53 too', collectPorts)
    .option(
      '--allow <destination>',
      'reach only this: a name, *.name, name:port, IPv4 address or block, models, secret:NAME, or one of ' +
        `${Object.keys(presets).join(', ')} (repeatable)`,
      collect,
    )
    .option('--deny <destination>', 'never reach this, also where --allow would (repeatable)', collect)
    .option('--ask', 'hold connections to names that no rule speaks of until somebody answers: `coppice net`')
    .option(
      '--host-port <port>',
      'reach this TCP port of the host, at the gateway (repeatable)',
      collectPorts,
    );

/** Only what was said on the command line. */
export const networkPatch = (options: NetworkOptions): RouteBody<'setNetwork'> => {
  const limits = (options.allow ?? []).length > 0 ? '--allow' : options.ask ? '--ask' : undefined;
  if (options.internet && limits !== undefined)
    throw new CoppiceError(
      'invalid_argument',
      `with ${limits} a sandbox reaches only what is named or answered, so --internet would mean nothing`,
      {
        hint: `Leave out --internet, or ${limits}. --deny keeps it from some of the internet.`,
      },
    );
  return patchOf(options);
};

const patchOf = (options: NetworkOptions): RouteBody<'setNetwork'> => ({
  ...(options.internet === undefined ? {} : { allow_internet: options.internet }),
  ...(options.interSandbox === undefined ? {} : { allow_inter_sandbox: options.interSandbox }),
  ...(options.allowPort === undefined ? {} : { allowed_ports: options.allowPort }),
  ...(options.allow === undefined ? {} : { allow: options.allow }),
  ...(options.deny === undefined ? {} : { deny: options.deny }),
  ...(options.ask === undefined ? {} : { ask: options.ask }),
  ...(options.hostPort === undefined ? {} : { allow_host_ports: options.hostPort }),
});
