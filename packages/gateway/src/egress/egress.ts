import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Caller, GatewayEvent } from '@coppice/protocol';
import type { SecretKeeper } from '../secrets/secret-keeper.ts';
import type { GatewayState } from '../state.ts';
import { Connections } from './connections.ts';
import { HttpByName } from './http-by-name.ts';
import { NameServer } from './name-server.ts';
import { NameBlock, NameTables, ownSlot } from './name-table.ts';
import { type EgressPolicy, type EgressPolicyBody, Policies } from './policies.ts';
import { Questions } from './questions.ts';
import { type Lookup, Reach } from './reach.ts';
import { ConnectionRecords } from './records.ts';

export interface EgressOptions {
  readonly state: GatewayState;
  /** The block of addresses that stand for names. */
  readonly names: string;
  /** Where sandboxes find the host. */
  readonly host: string;
  readonly lookup: Lookup;
  readonly keeper: SecretKeeper;
  readonly now: () => number;
  readonly emit: (event: GatewayEvent) => void;
  readonly own: (request: IncomingMessage, response: ServerResponse, policy: EgressPolicy) => void;
}

/** Where the host's rules lead what sandboxes send: for each port of a name the port that takes it, and for names one. */
export interface Doors {
  readonly dns: number;
  readonly ports: Readonly<Record<string, number>>;
}

/** DNS has no port of its own among names, so its door is remembered as this one. */
const dnsKey = 0;

/** The only way out of sandboxes whose policy names names. */
export class Egress {
  readonly records: ConnectionRecords;
  readonly questions: Questions;
  readonly #state: GatewayState;
  readonly #policies: Policies;
  readonly #tables: NameTables;
  readonly #connections: Connections;
  readonly #nameServer: NameServer;
  readonly #dns: number;

  private constructor(
    parts: Pick<EgressOptions, 'state'> & {
      policies: Policies;
      tables: NameTables;
      connections: Connections;
      records: ConnectionRecords;
      questions: Questions;
    },
    { server, port }: { server: NameServer; port: number },
  ) {
    this.#state = parts.state;
    this.#policies = parts.policies;
    this.#tables = parts.tables;
    this.#connections = parts.connections;
    this.records = parts.records;
    this.questions = parts.questions;
    this.#nameServer = server;
    this.#dns = port;
  }

  static async open({ state, names, host, lookup, keeper, now, emit, own }: EgressOptions): Promise<Egress> {
    const block = new NameBlock(names);
    const ownAddress = block.address(ownSlot);
    const policies = new Policies(state);
    const tables = new NameTables(state, block);
    const reach = new Reach(lookup);
    const records = new ConnectionRecords(state, now, emit);
    const http = new HttpByName({ reach, records, keeper, own });
    const questions = new Questions({ state, records, now, emit });
    const connections = new Connections({
      policies,
      tables,
      reach,
      records,
      keeper,
      http,
      questions,
      ownAddress,
      now,
    });
    const nameServer = await NameServer.open(
      {
        policies,
        tables,
        reach,
        ownAddress,
        hostAddress: host,
        onRefused: ({ sandbox }, name, reason) => records.refused(sandbox, name, 0, reason),
      },
      state.listeners().get(dnsKey) ?? 0,
    );
    state.setListener(dnsKey, nameServer.port);
    const egress = new Egress({ state, policies, tables, connections, records, questions }, nameServer);
    await egress.listen([...policies.ports]);
    return egress;
  }

  /** Opens doors for these ports beside those there are. The gateway itself is at port 80 of its address. */
  async listen(ports: readonly number[]): Promise<Doors> {
    const before = this.#state.listeners();
    for (const port of new Set([80, ...ports])) {
      const listener = await this.#connections.listener(port, before.get(port) ?? 0);
      if (before.get(port) !== listener) this.#state.setListener(port, listener);
    }
    return { dns: this.#dns, ports: Object.fromEntries(this.#connections.listeners) };
  }

  set(sandbox: string, policy: EgressPolicyBody): void {
    this.#policies.set(sandbox, policy);
    const now = this.#policies.of(policy.address);
    this.questions.review(sandbox, now);
    this.#connections.review(sandbox, now);
  }

  cut(sandbox: string): void {
    this.#connections.cut(sandbox);
  }

  /** For whom its calls to models count from now on. */
  setCaller(sandbox: string, caller: Caller): void {
    this.#policies.setCaller(sandbox, caller);
  }

  remove(sandbox: string): void {
    this.#policies.remove(sandbox);
    this.#tables.forget(sandbox);
    this.questions.review(sandbox, undefined);
    this.#connections.review(sandbox, undefined);
  }

  get openConnections(): number {
    return this.#connections.count;
  }

  get sandboxes(): readonly string[] {
    return this.#policies.sandboxes;
  }

  close(): void {
    this.questions.close();
    this.#connections.close();
    this.#nameServer.close();
  }
}
