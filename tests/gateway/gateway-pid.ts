import { readdirSync, readlinkSync } from 'node:fs';

/** The process that has its working directory in the home's part for the gateway. */
export function gatewayPid(home: string): number {
  for (const name of readdirSync('/proc')) {
    try {
      if (/^\d+$/.test(name) && readlinkSync(`/proc/${name}/cwd`) === `${home}/gateway`) return Number(name);
    } catch {}
  }
  throw new Error('no gateway runs');
}
