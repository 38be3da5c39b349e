import { formatBytes, formatCommand, printableName } from '@coppice/console';
import type { NetworkConnection, NetworkPolicyBody, Sandbox } from '@coppice/protocol';

/** A policy in one line. */
export const describeNetwork = (policy: NetworkPolicyBody): string => {
  const reach = [
    // An allow list is all of the outside, so the internet is not open beside it.
    policy.allow_internet && policy.allow.length === 0 ? 'internet' : '',
    policy.allow_inter_sandbox ? 'other sandboxes' : '',
    ...policy.allow,
    ...policy.allow_host_ports.map((port) => `port ${port} of the host`),
  ].filter((part) => part !== '');
  const ports = policy.allowed_ports.length > 0 ? `, ports ${policy.allowed_ports.join(' ')} only` : '';
  const deny = policy.deny.length > 0 ? `, never ${policy.deny.join(' ')}` : '';
  // Rules that wait for something to be allowed are rules all the same: nobody should have to guess that they are there.
  return (reach.join(', ') || 'none') + ports + deny;
};

/** One connection in a line; one that was refused with the command that would allow it. */
export const describeConnection = (
  { name, network }: Pick<Sandbox, 'name' | 'network'>,
  connection: NetworkConnection,
): string => {
  const time = new Date(connection.ended_ms).toLocaleTimeString(undefined, { hour12: false });
  const place = connection.port === 0 ? connection.name : `${connection.name}:${connection.port}`;
  if (connection.verdict === 'allowed') {
    const seconds = ((connection.ended_ms - connection.began_ms) / 1000).toFixed(1);
    const bytes = `sent ${formatBytes(connection.bytes_sent)}, received ${formatBytes(connection.bytes_received)}`;
    return printableName(`${time}  allowed  ${place}  ${bytes}, ${seconds} s  (${connection.remote})`);
  }
  const isWeb = [0, 80, 443].includes(connection.port);
  const wanted = isWeb ? connection.name : place;
  // The command sets the whole list, so what is allowed already stands in it too.
  const allow = [...network.allow, wanted].flatMap((entry) => ['--allow', entry]);
  const command = / is not allowed$| not at port /.test(connection.reason ?? '')
    ? `  To allow it: ${formatCommand(['coppice', 'net', name, ...allow])}`
    : '';
  return printableName(`${time}  refused  ${place}  ${connection.reason}.${command}`);
};
