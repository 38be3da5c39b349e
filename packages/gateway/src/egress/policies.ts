import { BlockList } from 'node:net';
import {
  type Caller,
  callerSchema,
  isName,
  type NameRule,
  ownDomain,
  plainName,
  ruleFor,
  webPorts,
} from '@coppice/protocol';
import { z } from 'zod';
import type { GatewayState } from '../state.ts';

const ruleSchema = z.strictObject({
  pattern: z.string().max(255),
  ports: z.array(z.int().min(1).max(65535)).max(64),
});

/** What one sandbox may reach by name, as the daemon says it. */
export const egressPolicySchema = z.strictObject({
  /** The address that its packets carry; the host lets none with another one pass. */
  address: z.ipv4(),
  allow: z.array(ruleSchema).max(4096),
  deny: z.array(ruleSchema).max(4096),
  /** Addresses that it may reach anyway: a name that leads to a private address is held to these. */
  blocks: z.array(z.union([z.ipv4(), z.cidrv4()])).max(256),
  /** Secrets that may be put into its requests. */
  secrets: z.array(z.string().max(63)).max(256).default([]),
  /** Names that no rule speaks of are asked about, and refused without an answer in this time; null: refused at once. */
  ask: z
    .strictObject({ within_ms: z.int().min(1000).max(86_400_000) })
    .nullable()
    .default(null),
  /** For whom its calls to models count. */
  caller: callerSchema.default({}),
});
export type EgressPolicyBody = z.infer<typeof egressPolicySchema>;

export interface EgressPolicy extends EgressPolicyBody {
  readonly sandbox: string;
  readonly reachable: BlockList;
}

export type Judgement =
  | { readonly allowed: true }
  /** With `asks`, somebody may be asked first. */
  | { readonly allowed: false; readonly reason: string; readonly asks: boolean };

/** Policies of all sandboxes, by the address that their packets come from. They outlive this process. */
export class Policies {
  readonly #state: GatewayState;
  readonly #byAddress = new Map<string, EgressPolicy>();
  readonly #bySandbox = new Map<string, EgressPolicy>();

  constructor(state: GatewayState) {
    this.#state = state;
    for (const { sandbox, body } of state.policies())
      this.#keep(sandbox, egressPolicySchema.parse(JSON.parse(body)));
  }

  set(sandbox: string, body: EgressPolicyBody): void {
    this.#state.setPolicy(sandbox, JSON.stringify(body));
    this.#forget(sandbox);
    this.#keep(sandbox, body);
  }

  setCaller(sandbox: string, caller: Caller): void {
    const before = this.#bySandbox.get(sandbox);
    if (before === undefined) return;
    const { sandbox: _, reachable: __, ...body } = before;
    this.set(sandbox, { ...body, caller });
  }

  remove(sandbox: string): void {
    this.#state.removeSandbox(sandbox);
    this.#forget(sandbox);
  }

  of(address: string | undefined): EgressPolicy | undefined {
    return address === undefined ? undefined : this.#byAddress.get(address);
  }

  get sandboxes(): readonly string[] {
    return [...this.#bySandbox.keys()];
  }

  /** Every port that some sandbox may reach by name. */
  get ports(): ReadonlySet<number> {
    const ports = new Set<number>();
    for (const { allow, ask } of this.#bySandbox.values()) {
      for (const rule of allow) for (const port of rule.ports) ports.add(port);
      if (ask !== null) for (const port of webPorts) ports.add(port);
    }
    return ports;
  }

  #keep(sandbox: string, body: EgressPolicyBody): void {
    const reachable = new BlockList();
    for (const block of body.blocks) {
      const [address = '', bits = '32'] = block.split('/');
      reachable.addSubnet(address, Number(bits), 'ipv4');
    }
    const policy = { ...body, sandbox, reachable };
    this.#bySandbox.set(sandbox, policy);
    this.#byAddress.set(body.address, policy);
  }

  #forget(sandbox: string): void {
    const before = this.#bySandbox.get(sandbox);
    this.#bySandbox.delete(sandbox);
    if (before !== undefined && this.#byAddress.get(before.address) === before)
      this.#byAddress.delete(before.address);
  }
}

/** Whether a sandbox may reach a name, at this port if one is given. */
export function judge(policy: EgressPolicy, name: string, port?: number): Judgement {
  const plain = plainName(name);
  const refused = (reason: string, asks = false): Judgement => ({ allowed: false, reason, asks });
  if (plain === ownDomain || plain.endsWith(`.${ownDomain}`))
    return refused(`${plain} is not a name of this gateway`);
  if (ruleFor(policy.deny, plain, port)) return refused(`${plain} is denied`);
  if (ruleFor(policy.allow, plain, port)) return { allowed: true };
  const elsewhere = port === undefined ? undefined : ruleFor(policy.allow, plain);
  if (elsewhere !== undefined)
    return refused(`${plain} is allowed at ${portsOf(elsewhere)}, not at port ${port}`);
  return refused(`${plain} is not allowed`, policy.ask !== null && isName(plain));
}

const portsOf = ({ ports }: NameRule): string =>
  `${ports.length === 1 ? 'port' : 'ports'} ${ports.join(' and ')}`;
