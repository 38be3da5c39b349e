import type { NetworkConnection, Question, Sandbox } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ask } from '../app/actions.tsx';
import { questions, watchQuestions } from '../app/questions.ts';
import { client, isAdmin, mayChange, noticeSignOut, onlySandbox } from '../app/session.ts';
import { now, saw } from '../app/store.ts';
import { bytes, clock, count, plain } from '../app/text.ts';
import { Failure } from '../app/ui.tsx';
import { answer } from './answer.ts';

const connectionsKept = 200;

const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** Only what the daemon itself forwards is a link: the address is its own. */
const isLocal = (url: string): boolean =>
  URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol);

/** What waits for an answer; whoever may not answer sees it too. */
const Questions = ({ sandbox, asked }: { sandbox: Sandbox; asked: readonly Question[] }) => (
  <section class="notice" aria-label="Waits for your answer">
    <h2>It waits for your answer</h2>
    <table>
      <tbody>
        {asked.map((question) => (
          <tr key={`${question.name}:${question.port}`}>
            <td class="mono">
              {plain(question.name)}:{question.port}
            </td>
            <td class="muted">
              {count(question.connections, 'connection')}, refused in{' '}
              {count(Math.max(0, Math.ceil((question.until_ms - now.value) / 1000)), 'second')}
            </td>
            <td class="do">
              {mayChange() && onlySandbox() === undefined && (
                <>
                  <button
                    type="button"
                    class="primary"
                    onClick={() => ask(answer(sandbox, question, 'Allow'))}
                  >
                    Allow
                  </button>
                  <button type="button" onClick={() => ask(answer(sandbox, question, 'Refuse'))}>
                    Refuse
                  </button>
                </>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </section>
);

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => {
  const failure = useSignal<unknown>(undefined);
  const connections = useSignal<readonly NetworkConnection[]>([]);
  const allow = useSignal(sandbox.network.allow.join(' '));
  const port = useSignal('');
  const handle = client().sandboxes.at(sandbox.id);
  const mayDecide = onlySandbox() === undefined && mayChange();
  const asked = questions.value.get(sandbox.id) ?? [];
  const act = (work: Promise<unknown>): void => {
    work
      .then(() => handle.inspect())
      .then(
        (detail) => {
          failure.value = undefined;
          saw(detail);
        },
        (error: unknown) => {
          noticeSignOut(error);
          failure.value = error;
        },
      );
  };
  useEffect(() => {
    const abort = new AbortController();
    const follow = async (): Promise<void> => {
      for await (const connection of handle.connections({ signal: abort.signal }))
        connections.value = [connection, ...connections.value].slice(0, connectionsKept);
    };
    follow().catch((error: unknown) => {
      if (!abort.signal.aborted) noticeSignOut(error);
    });
    return () => abort.abort();
  }, [sandbox.id]);
  useEffect(watchQuestions, []);
  const { network } = sandbox;
  return (
    <>
      <Failure error={failure.value} />
      {asked.length > 0 && <Questions sandbox={sandbox} asked={asked} />}
      <h2>What it may reach</h2>
      <div class="policy">
        <label>
          <input
            type="checkbox"
            disabled={!mayDecide}
            checked={network.allow_internet}
            onChange={(event) => act(handle.setNetwork({ allow_internet: event.currentTarget.checked }))}
          />{' '}
          The Internet
        </label>
        <label>
          <input
            type="checkbox"
            disabled={!mayDecide || !isAdmin()}
            checked={network.allow_inter_sandbox}
            onChange={(event) => act(handle.setNetwork({ allow_inter_sandbox: event.currentTarget.checked }))}
          />{' '}
          Other sandboxes
        </label>
        <label>
          <input
            type="checkbox"
            disabled={!mayDecide}
            checked={network.ask}
            onChange={(event) => act(handle.setNetwork({ ask: event.currentTarget.checked }))}
          />{' '}
          Ask about names that no rule allows
        </label>
        <form
          class="inline"
          onSubmit={(event) => {
            event.preventDefault();
            act(handle.setNetwork({ allow: words(allow.value) }));
          }}
        >
          <input
            type="text"
            class="mono"
            aria-label="Only these names and addresses"
            placeholder="Only these: pypi.org, *.debian.org, 10.0.0.0/8"
            disabled={!mayDecide}
            value={allow.value}
            onInput={(event) => {
              allow.value = event.currentTarget.value;
            }}
          />
          {mayDecide && <button type="submit">Set</button>}
        </form>
        {network.deny.length > 0 && <p class="muted">Never: {plain(network.deny.join(', '))}</p>}
        {network.allow_host_ports.length > 0 && (
          <p class="muted">Ports of this machine: {network.allow_host_ports.join(', ')}</p>
        )}
      </div>
      <h2>Ports that lead in</h2>
      {mayDecide && (
        <form
          class="inline"
          onSubmit={(event) => {
            event.preventDefault();
            act(handle.ports.forward(Number(port.value)));
            port.value = '';
          }}
        >
          <input
            type="number"
            min={1}
            max={65535}
            aria-label="Port inside"
            placeholder="Port inside"
            value={port.value}
            onInput={(event) => {
              port.value = event.currentTarget.value;
            }}
          />
          <button type="submit">Forward</button>
        </form>
      )}
      {sandbox.forwards.length > 0 && (
        <table>
          <thead>
            <tr>
              <th class="number">Inside</th>
              <th>Here</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {sandbox.forwards.map(({ guest_port, url }) => (
              <tr key={guest_port}>
                <td class="number">{guest_port}</td>
                <td>
                  {isLocal(url) ? (
                    <a href={url} target="_blank" rel="noopener noreferrer">
                      {url}
                    </a>
                  ) : (
                    plain(url)
                  )}
                </td>
                <td class="do">
                  {mayDecide && (
                    <button
                      type="button"
                      class="quiet small"
                      onClick={() => act(handle.ports.remove(guest_port))}
                    >
                      Remove
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {connections.value.length > 0 && (
        <>
          <h2>What it reached by name</h2>
          <table>
            <thead>
              <tr>
                <th>Time</th>
                <th>Name</th>
                <th>Verdict</th>
                <th class="number">Sent</th>
                <th class="number">Received</th>
              </tr>
            </thead>
            <tbody>
              {connections.value.map((connection) => (
                <tr key={connection.id}>
                  <td class="muted">{clock(new Date(connection.began_ms).toISOString())}</td>
                  <td class="mono">
                    {plain(connection.name)}:{connection.port}
                  </td>
                  <td class={connection.verdict === 'refused' ? 'bad' : ''}>
                    {connection.verdict}{' '}
                    {connection.reason !== null && <span class="muted">{plain(connection.reason)}</span>}
                  </td>
                  <td class="number">{bytes(connection.bytes_sent)}</td>
                  <td class="number">{bytes(connection.bytes_received)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </>
  );
};
