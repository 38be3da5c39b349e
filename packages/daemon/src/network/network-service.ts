import {
  type Answered,
  type answerQuestionSchema,
  CoppiceError,
  type connectionsQuery,
  destinationsOf,
  type NetworkConnection,
  type NetworkPolicyBody,
  networkPatchSchema,
  plainName,
  problemOfNames,
  type Question,
  type Sandbox,
  webPorts,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { SandboxRecord } from '../db/sandbox-table.ts';
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

type NetworkPatch = z.output<typeof networkPatchSchema>;

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
      if (destinationsOf(network.allow).names.length === 0 && !network.ask) continue;
      await locks.exclusive(id, async () => {
        const machine = machines.get(id);
        const record = state.sandboxes.byId(id);
        if (machine !== undefined && record !== undefined) await starter.applyPolicy(record, machine, true);
      });
    }
  }

  questions(ref: string): Promise<Question[]> {
    return this.#parts.gateway.questions(this.#parts.finder.get(ref).id);
  }

  /** Settles what a sandbox asks. `allow` and `deny` do so by its policy, so that what it says is what holds. */
  async answer(
    ref: string,
    { name, port, answer }: z.output<typeof answerQuestionSchema>,
  ): Promise<Answered> {
    const { finder, gateway } = this.#parts;
    const { id, name: sandbox } = finder.get(ref);
    const plain = plainName(name);
    const asked = (await gateway.questions(id)).filter(
      (each) => each.name === plain && (port === undefined || each.port === port),
    );
    const [question, other] = asked;
    if (question === undefined) throw notAsked(sandbox, plain);
    if (other !== undefined)
      throw new CoppiceError('invalid_argument', `${sandbox} asks for more than one port of ${plain}`, {
        hint: `Say which: ${asked.map((each) => `${plain}:${each.port}`).join(' or ')}.`,
      });
    if (answer === 'once' || answer === 'refuse') {
      if (!(await gateway.settle(id, question, answer))) throw notAsked(sandbox, plain);
    } else {
      const entry = webPorts.includes(question.port) ? plain : `${plain}:${question.port}`;
      await this.#change(id, ({ network }) =>
        networkPatchSchema.parse({ [answer]: [...network[answer], entry] }),
      );
    }
    return { name: plain, port: question.port, answer, connections: question.connections };
  }

  /** Enforced before it is written down: after a crash between the two, recovery applies what is written. */
  async patch(ref: string, input: NetworkPatch): Promise<Sandbox> {
    return this.#change(this.#parts.finder.get(ref).id, () => input);
  }

  #change(id: string, changes: (before: SandboxRecord) => NetworkPatch): Promise<Sandbox> {
    const { finder, locks, machines, starter, journal, state } = this.#parts;
    return locks.exclusive(id, async () => {
      const before = finder.get(id);
      const input = changes(before);
      const network: NetworkPolicyBody = {
        allow_internet: input.allow_internet ?? before.network.allow_internet,
        allow_inter_sandbox: input.allow_inter_sandbox ?? before.network.allow_inter_sandbox,
        allowed_ports: input.allowed_ports ?? before.network.allowed_ports,
        allow: input.allow ?? before.network.allow,
        deny: input.deny ?? before.network.deny,
        allow_host_ports: input.allow_host_ports ?? before.network.allow_host_ports,
        ask: input.ask ?? before.network.ask,
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

const notAsked = (sandbox: string, name: string): CoppiceError =>
  new CoppiceError('not_found', `${sandbox} does not ask for ${name}`, {
    hint: `See what it asks for: coppice net ${sandbox} --asked`,
  });
