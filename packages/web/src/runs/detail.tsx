import type { RunDetail, RunEvent, RunStep } from '@coppice/protocol';
import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ask } from '../app/actions.tsx';
import { client, isAdmin, mayChange, noticeSignOut, onlyRun } from '../app/session.ts';
import { hrefOf, nameOf } from '../app/store.ts';
import { dollars, plain } from '../app/text.ts';
import { Age, Copy, Failure } from '../app/ui.tsx';
import { forkRun, rewindRun } from './actions.ts';
import { Entry, entriesOf } from './timeline.tsx';

/** In the document; older ones come when they are asked for. */
const shownAtFirst = 400;
const eventsKept = 5_000;
/** Events that change what the head of the page says. */
const changes = /^(run\.|agent\.turn|agent\.waiting|agent\.exited|message\.)/;

export const RunState = ({ run }: { run: Pick<RunDetail, 'state' | 'outcome' | 'paused' | 'working'> }) => {
  const state =
    run.outcome === 'failed' || run.state === 'failed'
      ? 'failed'
      : run.outcome !== null
        ? 'stopped'
        : run.paused
          ? 'paused'
          : run.state === 'running'
            ? 'running'
            : 'creating';
  const word =
    run.outcome ??
    (run.paused ? 'paused' : run.state === 'running' ? (run.working ? 'working' : 'waits') : run.state);
  return (
    <span class={`state ${state}`}>
      <i aria-hidden="true" />
      {word}
    </span>
  );
};

const Say = ({ run, onError }: { run: string; onError: (error: unknown) => void }) => {
  const text = useSignal('');
  const urgency = useSignal<'steer' | 'queue' | 'now'>('steer');
  return (
    <form
      class="say"
      onSubmit={(event) => {
        event.preventDefault();
        const message = text.value;
        if (message.trim() === '') return;
        text.value = '';
        client()
          .runs.tell(run, message, { urgency: urgency.value })
          .catch((error: unknown) => {
            text.value = message;
            onError(error);
          });
      }}
    >
      <textarea
        rows={2}
        aria-label="Message to the agent"
        placeholder="Say something to the agent while it works"
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
            event.currentTarget.form?.requestSubmit();
        }}
      />
      <select
        aria-label="When"
        value={urgency.value}
        onChange={(event) => {
          urgency.value = event.currentTarget.value as 'steer';
        }}
      >
        <option value="steer">into this turn</option>
        <option value="queue">after this turn</option>
        <option value="now">at once</option>
      </select>
      <button type="submit" class="primary">
        Send
      </button>
    </form>
  );
};

const Steps = ({ run, steps }: { run: RunDetail; steps: readonly RunStep[] }) => (
  <>
    <h2>Steps</h2>
    <ol class="steps">
      {steps.toReversed().map((step) => (
        <li key={step.number}>
          <a href={`#event-${step.seq}`} class="number">
            {step.number}
          </a>
          <span class="cut">{plain(step.title)}</span>
          {step.snapshot_id !== null && mayChange() && (
            <span class="do">
              <button
                type="button"
                class="quiet small"
                aria-label={`Rewind to step ${step.number}`}
                onClick={() => ask(rewindRun(run, step.number))}
              >
                Rewind
              </button>
              {isAdmin() && (
                <button
                  type="button"
                  class="quiet small"
                  aria-label={`Fork from step ${step.number}`}
                  onClick={() => ask(forkRun(run, step.number))}
                >
                  Fork
                </button>
              )}
            </span>
          )}
        </li>
      ))}
    </ol>
  </>
);

export const RunPage = ({ of }: { of: string }) => {
  const run = useSignal<RunDetail | undefined>(undefined);
  const events = useSignal<readonly RunEvent[]>([]);
  const steps = useSignal<readonly RunStep[]>([]);
  const failure = useSignal<unknown>(undefined);
  const isWhole = useSignal(false);
  const fail = (error: unknown): void => {
    noticeSignOut(error);
    failure.value = error;
  };
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    const look = (): Promise<void> =>
      Promise.all([client().runs.get(of, { signal }), client().runs.steps(of, { signal })]).then(
        ([found, taken]) => {
          run.value = found;
          steps.value = taken;
        },
      );
    let waiting: ReturnType<typeof setTimeout> | undefined;
    let pending: RunEvent[] = [];
    let isStale = false;
    const settle = (): void => {
      waiting = undefined;
      events.value = [...events.value, ...pending].slice(-eventsKept);
      pending = [];
      if (isStale) look().catch((error: unknown) => signal.aborted || fail(error));
      isStale = false;
    };
    const follow = async (): Promise<void> => {
      await look();
      for await (const event of client().runs.events(of, { signal })) {
        pending.push(event);
        isStale ||= changes.test(event.type);
        waiting ??= setTimeout(settle, 100);
      }
    };
    follow().catch((error: unknown) => signal.aborted || fail(error));
    return () => {
      abort.abort();
      clearTimeout(waiting);
    };
  }, [of]);
  const entries = useComputed(() => entriesOf(events.value));
  const cost = useComputed(() =>
    events.value.reduce(
      (sum, event) => sum + (event.type === 'usage.call' ? (event.data.cost_micros ?? 0) : 0),
      0,
    ),
  );
  const found = run.value;
  if (found === undefined)
    return (
      <>
        <h1>{plain(of)}</h1>
        <Failure error={failure.value} />
      </>
    );
  const isOver = found.ended_at !== null;
  const act = (work: Promise<unknown>): void => {
    failure.value = undefined;
    work.catch(fail);
  };
  const shown = isWhole.value ? entries.value : entries.value.slice(-shownAtFirst);
  return (
    <>
      <div class="title">
        <RunState run={found} />
        <h1>{plain(found.name)}</h1>
        {mayChange() && !isOver && (
          <>
            <button type="button" onClick={() => act(client().runs.interrupt(found.id))}>
              Interrupt
            </button>
            <button
              type="button"
              onClick={() =>
                act(found.paused ? client().runs.resume(found.id) : client().runs.pause(found.id))
              }
            >
              {found.paused ? 'Resume' : 'Pause'}
            </button>
            <button type="button" class="danger" onClick={() => act(client().runs.stop(found.id))}>
              Stop
            </button>
          </>
        )}
      </div>
      <p class="task">{plain(found.task)}</p>
      <Failure error={failure.value} />
      <div class="split">
        <div class="tab">
          {entries.value.length > shown.length && (
            <button
              type="button"
              onClick={() => {
                isWhole.value = true;
              }}
            >
              Show the {entries.value.length - shown.length} before
            </button>
          )}
          <ol class="timeline" aria-label="What the agent did">
            {shown.map((event) => (
              <Entry key={event.seq} event={event} />
            ))}
          </ol>
          {mayChange() && !isOver && <Say run={found.id} onError={fail} />}
        </div>
        <aside aria-label="About this run">
          <dl class="facts">
            <dt>Agent</dt>
            <dd>{plain(found.agent)}</dd>
            {found.model !== null && (
              <>
                <dt>Model</dt>
                <dd>{plain(found.model)}</dd>
              </>
            )}
            <dt>Sandbox</dt>
            <dd>
              {found.sandbox_id === null ? (
                'gone'
              ) : onlyRun() !== undefined ? (
                <code>{found.sandbox_id}</code>
              ) : (
                <a href={hrefOf(found.sandbox_id)}>{plain(nameOf(found.sandbox_id))}</a>
              )}
            </dd>
            <dt>Turn</dt>
            <dd>{found.turn}</dd>
            <dt>Why</dt>
            <dd>{plain(found.reason)}</dd>
            <dt>Cost</dt>
            <dd>{dollars(cost.value)}</dd>
            <dt>Age</dt>
            <dd>
              <Age at={found.created_at} />
            </dd>
            {found.parent !== null && (
              <>
                <dt>Forked from</dt>
                <dd>
                  <a href={`/runs/${found.parent.run_id}`}>step {found.parent.step}</a>
                </dd>
              </>
            )}
            <dt>Id</dt>
            <dd>
              <code>{found.id}</code> <Copy text={found.id} />
            </dd>
          </dl>
          {steps.value.length > 0 && <Steps run={found} steps={steps.value} />}
        </aside>
      </div>
    </>
  );
};
