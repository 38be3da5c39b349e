import { formatBytes, formatCommand, printableName } from '@coppice/console';
import type { NetworkConnection, NetworkPolicyBody, Question, Sandbox } from '@coppice/protocol';

/** A policy in one line. */
export const describeNetwork = (policy: NetworkPolicyBody): string => {
  const reach = [
    // An allow list is all of the outside, so the internet is not open beside it.
    policy.allow_internet && policy.allow.length === 0 && !policy.ask ? 'internet' : '',
    policy.allow_inter_sandbox ? 'other sandboxes' : '',
    ...policy.allow,
    ...policy.allow_host_ports.map((port) => `port ${port} of the host`),
  ].filter((part) => part !== '');
  if (policy.ask) reach.push('other names after asking');
  const ports = policy.allowed_ports.length > 0 ? `, ports ${policy.allowed_ports.join(' ')} only` : '';
  const deny = policy.deny.length > 0 ? `, never ${policy.deny.join(' ')}` : '';
  // Rules that wait for something to be allowed are rules all the same: nobody should have to guess that they are there.
  return (reach.join(', ') || 'none') + ports + deny;
};

const answerCommand = (sandbox: string, place: string): string =>
  `Answer: ${formatCommand(['coppice', 'net', sandbox, '--answer', `${place}=allow`])} (or once, refuse, deny)`;

/** What a sandbox asks, a line for each. */
export const describeQuestions = (sandbox: string, questions: readonly Question[], nowMs: number): string =>
  questions
    .map(({ name, port, until_ms: untilMs, connections }) => {
      const waits = connections === 1 ? '1 connection waits' : `${connections} connections wait`;
      const leftS = Math.max(0, Math.round((untilMs - nowMs) / 1000));
      const place = `${name}:${port}`;
      return printableName(`${place}  ${waits}, ${leftS} s left. ${answerCommand(sandbox, place)}`);
    })
    .join('\n') || `${sandbox} asks for nothing.`;

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
  if (connection.verdict === 'asked')
    return printableName(`${time}  asked    ${place}  It waits. ${answerCommand(name, place)}`);
  const isWeb = [0, 80, 443].includes(connection.port);
  const wanted = isWeb ? connection.name : place;
  // The command sets the whole list, so what is allowed already stands in it too.
  const allow = [...network.allow, wanted].flatMap((entry) => ['--allow', entry]);
  const command = / is not allowed$| not at port /.test(connection.reason ?? '')
    ? `  To allow it: ${formatCommand(['coppice', 'net', name, ...allow])}`
    : '';
  return printableName(`${time}  refused  ${place}  ${connection.reason}.${command}`);
};
