import { type AddressPlan, linkPrefix, tableName } from './address-plan.ts';
import { formatCidr } from './cidr.ts';
import type { NameDoors, NetworkPolicy } from './network.ts';
import { hostPorts, policyRules, tooManyConnections } from './policy-rules.ts';

/**
 * The host's side: one table per home, which touches only packets of this home's own links. Scripts are nft
 * transactions: all of a script takes effect at one instant, or nothing of it. Each can be run again without harm.
 */
export class HostRules {
  readonly #homeKey: string;
  readonly #plan: AddressPlan;
  readonly #table: string;

  constructor(homeKey: string, plan: AddressPlan) {
    this.#homeKey = homeKey;
    this.#plan = plan;
    this.#table = `inet ${tableName(homeKey)}`;
  }

  attach(slot: number, policy: NetworkPolicy, byName?: NameDoors): string {
    const table = this.#table;
    const chain = policyChain(slot);
    const link = `"${this.#plan.linkName(slot)}"`;
    const address = this.#plan.address(slot);
    const peer = 'iifname @inter oifname @inter accept';
    const door = doorChain(slot);
    const ports = hostPorts(policy, this.#plan.gateway).join(', ');
    const names = formatCidr(this.#plan.names);
    const taken = (doors: ReadonlyMap<number, number>) =>
      [...doors].map(([port, door]) => `${port} : ${door}`).join(', ');
    const rules = policyRules(policy, { range: this.#plan.range, peer, refusal: 'goto refuse' });
    return lines([
      ...this.#frame(),
      `add chain ${table} ${chain}`,
      `flush chain ${table} ${chain}`,
      ...[`${tooManyConnections} drop`, ...rules].map((rule) => `add rule ${table} ${chain} ${rule}`),
      `add chain ${table} ${door}`,
      `flush chain ${table} ${door}`,
      ...(ports === '' ? [] : [`add rule ${table} ${door} tcp dport { ${ports} } accept`]),
      ...(byName === undefined
        ? []
        : [
            `add rule ${table} ${door} ${tooManyConnections} drop`,
            `add rule ${table} ${door} ct status dnat ip daddr ${names} accept`,
            `add rule ${table} ${door} meta l4proto { tcp, udp } ct status dnat ct original proto-dst 53 accept`,
            `flush map ${table} takers`,
            `add element ${table} takers { ${taken(byName.ports)} }`,
            `flush map ${table} resolver`,
            `add element ${table} resolver { 53 : ${byName.dns} }`,
          ]),
      `add element ${table} named { ${link} }`,
      ...(byName === undefined ? [`delete element ${table} named { ${link} }`] : []),
      `add element ${table} doors { ${link} : jump ${door} }`,
      `add element ${table} members { ${link} . ${address} }`,
      `add element ${table} policies { ${address} : goto ${chain} }`,
      `add element ${table} inter { ${link} }`,
      ...(policy.allowInterSandbox ? [] : [`delete element ${table} inter { ${link} }`]),
    ]);
  }

  detach(slot: number): string {
    const table = this.#table;
    const chain = policyChain(slot);
    const door = doorChain(slot);
    const link = `"${this.#plan.linkName(slot)}"`;
    const address = this.#plan.address(slot);
    const forget = (set: string, element: string, key = element): string[] => [
      `add element ${table} ${set} { ${element} }`,
      `delete element ${table} ${set} { ${key} }`,
    ];
    return lines([
      ...this.#frame(),
      `add chain ${table} ${chain}`,
      `add chain ${table} ${door}`,
      ...forget('doors', `${link} : jump ${door}`, link),
      `flush chain ${table} ${door}`,
      `delete chain ${table} ${door}`,
      ...forget('inter', link),
      ...forget('named', link),
      ...forget('members', `${link} . ${address}`),
      ...forget('policies', `${address} : goto ${chain}`, address),
      `flush chain ${table} ${chain}`,
      `delete chain ${table} ${chain}`,
    ]);
  }

  /** What every attachment stands on. Flushed and filled within the same transaction, so never seen empty. */
  #frame(): string[] {
    const table = this.#table;
    const ours = `"${linkPrefix(this.#homeKey)}*"`;
    const chains = {
      guard: 'type filter hook prerouting priority raw; policy accept;',
      tohost: 'type filter hook input priority filter - 10; policy accept;',
      byname: 'type nat hook prerouting priority dstnat; policy accept;',
      forward: 'type filter hook forward priority filter - 10; policy accept;',
      outward: 'type nat hook postrouting priority srcnat; policy accept;',
    };
    const names = formatCidr(this.#plan.names);
    const rules: readonly (readonly [string, string])[] = [
      // Where a policy is by name, every resolver is the gateway, and so is every address that stands for a name.
      ['byname', `iifname @named udp dport 53 dnat ip to ${this.#plan.gateway} : udp dport map @resolver`],
      ['byname', `iifname @named tcp dport 53 dnat ip to ${this.#plan.gateway} : tcp dport map @resolver`],
      [
        'byname',
        `iifname @named ip daddr ${names} tcp dport 1-65535 dnat ip to ip daddr : tcp dport map @takers`,
      ],
      // Nothing that does not carry the address of the link it came in by.
      ['guard', `iifname ${ours} meta nfproto ipv6 drop`],
      ['guard', `iifname ${ours} iifname . ip saddr != @members drop`],
      // The host answers no sandbox but where its policy opens a port, at the gateway alone. Replies to what the host itself
      // began are let in.
      ['tohost', `iifname ${ours} ct direction reply ct state established,related accept`],
      ['tohost', `ip daddr { ${this.#plan.gateway}, ${names} } iifname vmap @doors`],
      ['tohost', `iifname ${ours} meta l4proto tcp reject with tcp reset`],
      ['tohost', `iifname ${ours} reject with icmpx type admin-prohibited`],
      ['forward', `iifname ${ours} goto judge`],
      ['forward', `oifname ${ours} goto judge`],
      // A port of the host that is forwarded to somewhere else is still a service of the host.
      ['judge', 'ct status dnat drop'],
      // Connections are judged by who began them; only sandboxes of this home are on the list.
      ['judge', 'ct original ip saddr vmap @policies'],
      ['judge', 'goto refuse'],
      // A sandbox is told at once: one that has a kernel of its own has no rules inside that would, and a lookup would wait 40 s.
      // Nobody else learns anything.
      ['refuse', `iifname ${ours} meta l4proto tcp reject with tcp reset`],
      ['refuse', `iifname ${ours} meta l4proto udp reject with icmpx type port-unreachable`],
      ['refuse', `iifname ${ours} reject with icmpx type admin-prohibited`],
      ['refuse', 'drop'],
      ['outward', `ip saddr ${formatCidr(this.#plan.range)} oifname != ${ours} masquerade`],
    ];
    return [
      `add table ${table}`,
      `add set ${table} members { type ifname . ipv4_addr; }`,
      `add set ${table} inter { type ifname; }`,
      `add set ${table} named { type ifname; }`,
      `add map ${table} takers { type inet_service : inet_service; }`,
      `add map ${table} resolver { type inet_service : inet_service; }`,
      `add map ${table} doors { type ifname : verdict; }`,
      `add map ${table} policies { type ipv4_addr : verdict; }`,
      ...Object.entries(chains).map(([name, hook]) => `add chain ${table} ${name} { ${hook} }`),
      `add chain ${table} judge`,
      `add chain ${table} refuse`,
      ...[...Object.keys(chains), 'judge', 'refuse'].map((name) => `flush chain ${table} ${name}`),
      ...rules.map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
    ];
  }
}

const doorChain = (slot: number): string => `door_${slot.toString(16).padStart(4, '0')}`;
const policyChain = (slot: number): string => `policy_${slot.toString(16).padStart(4, '0')}`;

/** The slot of a chain that attach made. */
export function slotOfChain(name: string): number | undefined {
  const digits = /^policy_([0-9a-f]{4})$/.exec(name)?.[1];
  return digits === undefined ? undefined : Number.parseInt(digits, 16);
}

export const lines = (items: readonly string[]): string => `${items.join('\n')}\n`;
