import type { NetworkPolicyBody, networkPatchSchema, Sandbox } from '@coppice/protocol';
import type { z } from 'zod';
import type { Core } from '../sandboxes/core.ts';
import { sandboxView } from '../sandboxes/views.ts';

export class NetworkService {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  /** Enforced before it is written down: after a crash between the two, recovery applies what is written. */
  async patch(ref: string, input: z.output<typeof networkPatchSchema>): Promise<Sandbox> {
    const { finder, locks, machines, starter, journal, state } = this.#core;
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
