import type { MachineSpec } from '../../src/index.ts';
import { makeGvisorDriver } from './make-gvisor-driver.ts';

/** A process that makes a sandbox whose network never comes; to be killed. Arguments: home, its key, the spec as JSON. */
const [home, homeKey, spec] = process.argv.slice(2);
setInterval(() => {}, 60_000);
await makeGvisorDriver(home!, homeKey!).start({
  ...(JSON.parse(spec!) as MachineSpec),
  networkStands: new Promise(() => {}),
});
