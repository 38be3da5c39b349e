import type { AddressPlan } from './address-plan.ts';
import { formatCidr } from './cidr.ts';
import { lines } from './host-rules.ts';
import type { NetworkPolicy } from './network.ts';
import { hostPorts, isByName, policyRules, tooManyConnections } from './policy-rules.ts';

/**
 * The same policy in the sandbox's own network namespace, where what is refused is refused at once with an error that
 * programs understand. What is inside may not change it, and the host's side holds if it could.
 */
export function sandboxRules(plan: AddressPlan, slot: number, policy: NetworkPolicy): string {
  const table = 'inet coppice';
  const range = formatCidr(plan.range);
  const ports = hostPorts(policy, plan.gateway).join(', ');
  const host = [
    ...(ports === ''
      ? []
      : [`meta l4proto tcp ct original ip daddr ${plan.gateway} ct original proto-dst { ${ports} } accept`]),
    ...(!isByName(policy)
      ? []
      : [
          `meta l4proto tcp ct original ip daddr ${formatCidr(plan.names)} accept`,
          'meta l4proto { tcp, udp } ct original proto-dst 53 accept',
        ]),
  ];
  const context = { range: plan.range, peer: 'accept', host, refusal: 'return' } as const;
  const rules: (readonly [string, string])[] = [
    // What it sends to itself is judged by nobody, so nothing of it has to be remembered.
    ['sent', 'oifname "lo" notrack'],
    ['received', 'iifname "lo" notrack'],
    ['output', 'oifname "lo" accept'],
    ['output', 'meta nfproto ipv6 reject with icmpx type admin-prohibited'],
    ['output', `ip saddr != ${plan.address(slot)} drop`],
    ['input', 'iifname "lo" accept'],
    ['input', 'meta nfproto ipv6 drop'],
    ['input', 'ct direction reply ct state established,related jump allowed'],
    ...policyRules(policy, context).map((rule) => ['allowed', rule] as const),
  ];
  if (policy.allowInterSandbox) {
    rules.push(['output', `ct direction reply ct original ip saddr ${range} accept`]);
    rules.push(['input', `ct direction original ip saddr ${range} accept`]);
  }
  rules.push(['output', `${tooManyConnections} reject with icmpx type admin-prohibited`]);
  rules.push(['output', 'ct direction original jump allowed']);
  rules.push(['output', 'meta l4proto tcp reject with tcp reset']);
  rules.push(['output', 'reject with icmpx type admin-prohibited']);
  const hook = (name: string): string =>
    `add chain ${table} ${name} { type filter hook ${name} priority filter; policy drop; }`;
  return lines([
    // Replaced whole, in one transaction: there is no instant without rules.
    `add table ${table}`,
    `delete table ${table}`,
    `add table ${table}`,
    `add chain ${table} sent { type filter hook output priority raw; policy accept; }`,
    `add chain ${table} received { type filter hook prerouting priority raw; policy accept; }`,
    ...['input', 'forward', 'output'].map(hook),
    `add chain ${table} allowed`,
    ...rules.map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
  ]);
}
