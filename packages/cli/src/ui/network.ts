import type { NetworkPolicyBody } from '@coppice/protocol';

/** A policy in one line. */
export const describeNetwork = (policy: NetworkPolicyBody): string => {
  const reach = [
    policy.allow_internet ? 'internet' : '',
    policy.allow_inter_sandbox ? 'other sandboxes' : '',
    ...policy.allow,
    ...policy.allow_host_ports.map((port) => `port ${port} of the host`),
  ].filter((part) => part !== '');
  const ports = policy.allowed_ports.length > 0 ? `, ports ${policy.allowed_ports.join(' ')} only` : '';
  const deny = policy.deny.length > 0 ? `, never ${policy.deny.join(' ')}` : '';
  // Rules that wait for something to be allowed are rules all the same: nobody should have to guess that they are there.
  return (reach.join(', ') || 'none') + ports + deny;
};
