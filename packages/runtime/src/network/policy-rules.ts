import { CoppiceError } from '@coppice/protocol';
import { type Cidr, formatCidr, overlaps, parseCidr } from './cidr.ts';
import type { NetworkPolicy } from './network.ts';

/** Never reached from a sandbox, whatever its policy: loopback, link-local with the metadata services of clouds, multicast. */
const never = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4'];
/** Not the internet: reached only by being named in the allow list. */
const privateBlocks = ['10.0.0.0/8', '100.64.0.0/10', '172.16.0.0/12', '192.168.0.0/16', '198.18.0.0/15'];

/**
 * Matches a new connection when the sandbox has this many already. The kernel's table of connections is one for the whole host:
 * when it is full, nobody gets a new one.
 */
export const tooManyConnections = 'ct state new ct count over 4096';

export interface RuleContext {
  /** The addresses of this home's sandboxes. */
  readonly range: Cidr;
  /** What happens to a packet of another sandbox of this home when this one allows it. */
  readonly peer: string;
  /** What leads to the ports of the host that are allowed; the host's own side has its rules for that elsewhere. */
  readonly host?: readonly string[];
  /** What happens to a packet that the policy does not let pass. */
  readonly refusal: 'goto refuse' | 'return';
}

/**
 * The rules of one policy. They look at the addresses and ports that the connection began with, not at those of the
 * packet: so the same rules judge both directions, and a connection that a new policy forbids ends at its next packet.
 */
export function policyRules(policy: NetworkPolicy, context: RuleContext): string[] {
  const { range, peer, host = [], refusal } = context;
  const to = (blocks: readonly string[]): string => `ct original ip daddr { ${blocks.join(', ')} }`;
  const allow = blocks(policy.allow);
  const deny = blocks(policy.deny);
  const ports = [...new Set(policy.allowedPorts)].join(', ');
  const rules = [`ct state invalid ${refusal === 'return' ? refusal : 'drop'}`, `${to(never)} ${refusal}`];
  if (deny.length > 0) rules.push(`${to(deny)} ${refusal}`);
  rules.push(...host);
  if (ports !== '') {
    rules.push(`meta l4proto != { tcp, udp, icmp } ${refusal}`);
    // Errors about a connection (no route, too big) belong to it and carry no port of their own.
    rules.push(`meta l4proto icmp ct state != related ${refusal}`);
    rules.push(`meta l4proto { tcp, udp } ct direction original th dport != { ${ports} } ${refusal}`);
    rules.push(`meta l4proto { tcp, udp } ct direction reply th sport != { ${ports} } ${refusal}`);
  }
  if (policy.allowInterSandbox) rules.push(`${to([formatCidr(range)])} ${peer}`);
  rules.push(`${to([formatCidr(range)])} ${refusal}`);
  if (allow.length > 0) rules.push(`${to(allow)} accept`);
  else if (isByName(policy)) rules.push(refusal);
  else if (policy.allowInternet) rules.push(`${to(privateBlocks)} ${refusal}`, 'accept');
  rules.push(refusal);
  return rules;
}

/** Whether what leaves goes through the gateway, which judges it by name. */
export const isByName = (policy: NetworkPolicy): boolean => policy.names.length > 0 || policy.asks === true;

/** True where a policy lets nothing out or in, so that no link is needed. */
export const isClosed = (policy: NetworkPolicy): boolean =>
  !policy.allowInternet &&
  !policy.allowInterSandbox &&
  policy.allow.length === 0 &&
  policy.allowHostPorts.length === 0 &&
  !isByName(policy);

/** Of the host, at the gateway's address; none where the policy denies that address. */
export const hostPorts = (policy: NetworkPolicy, gateway: string): number[] =>
  policy.deny.some((block) => overlaps(parseCidr(block), parseCidr(gateway)))
    ? []
    : [...new Set(policy.allowHostPorts)];

export function checkPolicy(policy: NetworkPolicy): void {
  for (const port of [...policy.allowedPorts, ...policy.allowHostPorts]) {
    if (Number.isInteger(port) && port >= 1 && port <= 65535) continue;
    throw new CoppiceError('invalid_argument', `${port} is not a port`, {
      hint: 'Ports go from 1 to 65535.',
    });
  }
  for (const block of [...policy.allow, ...policy.deny]) parseCidr(block);
}

const blocks = (texts: readonly string[]): string[] => [
  ...new Set(texts.map((text) => formatCidr(parseCidr(text)))),
];
