import { execFileSync } from 'node:child_process';
import { guestProgram, installedProgram } from '@coppice/testkit';
import { type Driver, GvisorDriver, type MachineSpec } from '../../src/index.ts';

const ip = (...args: string[]) => execFileSync('ip', args, { stdio: 'pipe' });

/**
 * A driver whose sandboxes get an empty network namespace each, as the network of a home would prepare it: the driver
 * wants one before the start.
 */
export const makeGvisorDriver = (home: string, homeKey: string): Driver => {
  const driver = new GvisorDriver({
    home,
    homeKey,
    programs: { agent: installedProgram('coppice-agent'), relay: guestProgram('coppice-relay') },
  });
  const namespaces = new Set<string>();
  const withNetns = (spec: MachineSpec): MachineSpec => {
    const name = `coppice-${homeKey}-${spec.id.slice(-4)}`;
    if (!namespaces.has(name)) {
      namespaces.add(name);
      ip('netns', 'add', name);
      ip('-n', name, 'link', 'set', 'lo', 'up');
    }
    return { ...spec, netns: `/run/netns/${name}` };
  };
  return {
    name: driver.name,
    takesForeignMemory: driver.takesForeignMemory,
    memoryRefusal: () => driver.memoryRefusal(),
    needsNetns: driver.needsNetns,
    probe: () => driver.probe(),
    start: (spec) => driver.start(withNetns(spec)),
    restore: (spec, checkpointDir) => driver.restore(withNetns(spec), checkpointDir),
    adopt: (spec) => driver.adopt(spec),
    discard: (id) => driver.discard(id),
    sweep: (keep) => driver.sweep(keep),
    forgetPrograms: () => driver.forgetPrograms(),
    close: async () => {
      await driver.close();
      for (const name of namespaces) ip('netns', 'del', name);
      namespaces.clear();
    },
  };
};
