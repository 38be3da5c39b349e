import {
  CoppiceError,
  type connectionsQuery,
  destinationsOf,
  type NetworkConnection,
  type NetworkPolicyBody,
  type networkPatchSchema,
  problemOfNames,
  type Sandbox,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { KeyedLock } from '../journal/keyed-lock.ts';
import type { MachineStarter } from '../sandboxes/machine-starter.ts';
import type { Machines } from '../sandboxes/machines.ts';
import type { SandboxFinder } from '../sandboxes/sandbox-finder.ts';
import { sandboxView } from '../sandboxes/views.ts';
import type { GatewayProcess } from './gateway-process.ts';

export interface NetworkServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly locks: KeyedLock;
  readonly finder: SandboxFinder;
  readonly machines: Machines;
  readonly starter: MachineStarter;
  readonly gateway: GatewayProcess;
}

export class NetworkService {
  readonly #parts: NetworkServiceParts;

  constructor(parts: NetworkServiceParts) {
    this.#parts = parts;
  }

  connections(
    ref: string,
    { after, limit, wait_ms: waitMs }: z.output<typeof connectionsQuery>,
    signal?: AbortSignal,
  ): Promise<NetworkConnection[]> {
    const { finder, gateway } = this.#parts;
    return gateway.connections(finder.get(ref).id, { after, limit, waitMs }, signal);
  }

  /** After the gateway was started anew: what leads there may have another port. */
  async applyAgain(): Promise<void> {
    const { state, locks, machines, starter } = this.#parts;
    for (const { id, network } of state.sandboxes.all()) {
      if (destinationsOf(network.allow).names.length === 0) continue;
      await locks.exclusive(id, async () => {
        const machine = machines.get(id);
        const record = state.sandboxes.byId(id);
        if (machine !== undefined && record !== undefined) await starter.applyPolicy(record, machine, true);
      });
    }
  }

  /** Enforced before it is written down: after a crash between the two, recovery applies what is written. */
  async patch(ref: string, input: z.output<typeof networkPatchSchema>): Promise<Sandbox> {
    const { finder, locks, machines, starter, journal, state } = this.#parts;
    const { id } = finder.get(ref);
    return locks.exclusive(id, async () => {
      const before = finder.get(id);
      const network: NetworkPolicyBody = {
        allow_internet: input.allow_internet ?? before.network.allow_internet,
        allow_inter_sandbox: input.allow_inter_sandbox ?? before.network.allow_inter_sandbox,
        allowed_ports: input.allowed_ports ?? before.network.allowed_ports,
        allow: input.allow ?? before.network.allow,
        deny: input.deny ?? before.network.deny,
        allow_host_ports: input.allow_host_ports ?? before.network.allow_host_ports,
      };
      const problem = problemOfNames(network);
      if (problem !== undefined)
        throw new CoppiceError('invalid_argument', `the policy of ${before.name} ${problem}`, {
          hint: `For example: coppice net ${before.name} --allow '*' --deny ads.example.com`,
        });
      const machine = machines.get(id);
      const address =
        machine === undefined
          ? before.address
          : await starter.applyPolicy({ ...before, network }, machine, true);
      journal.commit((emit) => {
        state.sandboxes.update(id, { network, address });
        emit('sandbox.network_changed', id, { network });
      });
      return sandboxView(finder.get(id), state.forwards.ofSandbox(id));
    });
  }
}
