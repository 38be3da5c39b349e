import { setImmediate as nextTurn } from 'node:timers/promises';
import type { DiskStore } from '@coppice/disks';
import { destinationsOf, type NetworkPolicyBody } from '@coppice/protocol';
import type { Driver, ImageRoot, Machine, MachineSpec, Network, NetworkPolicy } from '@coppice/runtime';
import type { SandboxRecord } from '../db/sandbox-table.ts';

export type Drivers = Readonly<Record<SandboxRecord['driver'], Driver>>;

export interface MachineStarterParts {
  readonly drivers: Drivers;
  readonly network: Network;
  readonly disks: DiskStore;
  readonly imageRoot: (imageId: string) => ImageRoot;
}

export interface StartOptions {
  /** What a checkpoint kept: go on from there instead of from the beginning. */
  readonly memoryDir?: string | undefined;
  /** Where the disk is still being made: the machine waits for it, its network does not. */
  readonly disk?: Promise<unknown>;
  readonly onBooted?: () => void;
  /** It is given up. */
  readonly signal?: AbortSignal | undefined;
}

export interface Started {
  readonly machine: Machine;
  readonly address: string | null;
}

const mebibyte = 1024 * 1024;

const toNetworkPolicy = (policy: NetworkPolicyBody): NetworkPolicy => {
  const allow = destinationsOf(policy.allow);
  const deny = destinationsOf(policy.deny);
  return {
    allowInternet: policy.allow_internet,
    allowInterSandbox: policy.allow_inter_sandbox,
    allowedPorts: policy.allowed_ports,
    allow: allow.blocks,
    deny: deny.blocks,
    allowHostPorts: policy.allow_host_ports,
    names: allow.names,
    deniedNames: deny.names,
    secrets: allow.secrets,
    asks: policy.ask,
  };
};

/** A machine starts with nothing but its loopback, so a policy that allows nothing needs nothing done. */
const allowsNothing = (policy: NetworkPolicyBody): boolean =>
  !policy.allow_internet &&
  !policy.allow_inter_sandbox &&
  !policy.ask &&
  policy.allow.length === 0 &&
  policy.allow_host_ports.length === 0;

export const toLimits = (record: Pick<SandboxRecord, 'cpus' | 'memoryMb' | 'pids'>) => ({
  cpus: record.cpus,
  memoryBytes: record.memoryMb * mebibyte,
  pids: record.pids,
});

export const diskBytes = (record: Pick<SandboxRecord, 'diskMb'>): number => record.diskMb * mebibyte;

/** Joins disk, driver and network into a machine that runs. */
export class MachineStarter {
  readonly #parts: MachineStarterParts;

  constructor(parts: MachineStarterParts) {
    this.#parts = parts;
  }

  driver(name: SandboxRecord['driver']): Driver {
    return this.#parts.drivers[name];
  }

  /** When it throws nothing of the machine is left. */
  async start(record: SandboxRecord, options: StartOptions = {}): Promise<Started> {
    const driver = this.driver(record.driver);
    if (driver.needsNetns) return this.#startAttached(record, driver, options);
    await options.disk;
    const machine = await this.#boot(driver, this.#spec(record), options);
    try {
      options.onBooted?.();
      return { machine, address: await this.applyPolicy(record, machine) };
    } catch (error) {
      await machine.stop(0);
      await this.#parts.network.release(record.id);
      throw error;
    }
  }

  /** For drivers whose network stands before the first instruction runs: disk, network and machine are made side by side. */
  async #startAttached(record: SandboxRecord, driver: Driver, options: StartOptions): Promise<Started> {
    const { network } = this.#parts;
    const { disk, onBooted } = options;
    const namespace = network.createNamespace(record.id);
    const ground = Promise.all([namespace, disk]);
    const attachment = ground.then(async ([netns]) => {
      // The machine is begun first, as it takes longer, and whatever starts a program keeps the daemon busy for a while.
      await nextTurn();
      return network.apply(record.id, netns, toNetworkPolicy(record.network), 'fresh');
    });
    const settled = Promise.allSettled([namespace, disk, attachment]);
    try {
      const [netns] = await ground;
      const spec = { ...this.#spec(record), netns, networkStands: attachment };
      const machine = await this.#boot(driver, spec, options);
      onBooted?.();
      return { machine, address: (await attachment).address };
    } catch (error) {
      // Nothing is taken away while it is still being made.
      await settled;
      await network.release(record.id);
      throw error;
    }
  }

  /** Makes a machine that runs obey the record's policy; `always` also when it allows nothing, to take back what was allowed. */
  async applyPolicy(record: SandboxRecord, machine: Machine, always = false): Promise<string | null> {
    const { network } = this.#parts;
    const policy = toNetworkPolicy(record.network);
    if (this.driver(record.driver).needsNetns) {
      return (await network.apply(record.id, await network.createNamespace(record.id), policy, 'kept'))
        .address;
    }
    if (!always && allowsNothing(record.network)) return null;
    return (await network.apply(record.id, `/proc/${machine.pid}/ns/net`, policy)).address;
  }

  /** A machine that an earlier daemon left running. */
  async adopt(record: SandboxRecord, ended: AbortSignal): Promise<Machine | undefined> {
    const driver = this.driver(record.driver);
    const netns = driver.needsNetns ? await this.#parts.network.createNamespace(record.id) : undefined;
    return driver.adopt({ ...this.#spec(record), ...(netns === undefined ? {} : { netns }) }, ended);
  }

  /** A machine for the warm pool: its disk is there, its name comes later. */
  startBare(record: SandboxRecord): Promise<Machine> {
    return this.#boot(this.driver(record.driver), this.#spec(record));
  }

  #boot(driver: Driver, spec: MachineSpec, { memoryDir, signal }: StartOptions = {}): Promise<Machine> {
    return memoryDir === undefined ? driver.start(spec, signal) : driver.restore(spec, memoryDir, signal);
  }

  #spec(record: SandboxRecord): MachineSpec {
    return {
      id: record.id,
      hostname: record.hostname,
      image: this.#parts.imageRoot(record.imageId),
      diskDir: this.#parts.disks.diskDir(record.id),
      limits: toLimits(record),
      mounts: record.mounts,
    };
  }
}
