import type { EventBody, RunEvent } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { client, noticeSignOut } from '../app/session.ts';
import { bytes, clock, dollars, exact, plain } from '../app/text.ts';
import { hunksOf } from '../compare/patch.ts';

/** Signs of life: they are in the log, and say nothing to a person who reads it. */
const isNoise = ({ type }: RunEvent): boolean => type === 'agent.heartbeat' || type === 'agent.context';

/** Output of a program comes in pieces; those that follow each other are one entry. */
export const entriesOf = (events: readonly RunEvent[]): RunEvent[] => {
  const entries: RunEvent[] = [];
  for (const event of events) {
    if (isNoise(event)) continue;
    const last = entries.at(-1);
    if (
      last?.type === 'agent.output' &&
      event.type === 'agent.output' &&
      last.data.stream === event.data.stream &&
      last.data.text.ref === null &&
      event.data.text.ref === null &&
      last.data.text.text.length < 20_000
    ) {
      const text = last.data.text.text + event.data.text.text;
      entries[entries.length - 1] = {
        ...last,
        data: {
          ...last.data,
          text: { text, bytes: last.data.text.bytes + event.data.text.bytes, ref: null },
        },
      };
    } else entries.push(event);
  }
  return entries;
};

/** A text that is cut in the event is fetched whole when it is asked for. */
const Body = ({ run, body, className = '' }: { run: string; body: EventBody; className?: string }) => {
  const whole = useSignal<string | undefined>(undefined);
  return (
    <>
      <pre class={`body ${className}`}>{plain(whole.value ?? body.text)}</pre>
      {body.ref !== null && whole.value === undefined && (
        <button
          type="button"
          class="quiet small"
          onClick={() => {
            client()
              .runs.body(run, body.ref!)
              .then((text) => {
                whole.value = text;
              }, noticeSignOut);
          }}
        >
          All of it, {bytes(body.bytes)}
        </button>
      )}
    </>
  );
};

const Edit = ({ run, body }: { run: string; body: EventBody }) => {
  const lines = hunksOf(body.text).flatMap((hunk) => hunk.lines);
  if (lines.length === 0) return body.text === '' ? null : <Body run={run} body={body} />;
  return (
    <pre class="body edit">
      {lines.map((line) => (
        <span key={`${line.before} ${line.after}`} class={line.kind}>
          {line.kind === 'added' ? '+' : line.kind === 'removed' ? '−' : ' '} {plain(line.text)}
          {'\n'}
        </span>
      ))}
    </pre>
  );
};

/** What it is in a few words, and the rest below it. */
const said = (event: RunEvent): { title: string; detail?: JSX.Element | null; tone?: string } => {
  const run = event.run_id;
  switch (event.type) {
    case 'run.state':
      return {
        title: `${event.data.to}: ${event.data.reason}`,
        tone: event.data.to === 'failed' ? 'bad' : 'state',
      };
    case 'run.setup':
      return {
        title: `${event.data.stage} ${event.data.status}`,
        tone: event.data.status === 'failed' ? 'bad' : 'quiet',
      };
    case 'run.step':
      return { title: `step ${event.data.step}: ${event.data.title}`, tone: 'quiet' };
    case 'agent.started':
      return { title: `${event.data.agent} ${event.data.resumed ? 'goes on' : 'starts'}`, tone: 'quiet' };
    case 'run.rewound':
      return { title: `rewound from step ${event.data.from_step} to ${event.data.to_step}`, tone: 'state' };
    case 'run.forked':
      return { title: `forked at step ${event.data.step} into ${event.data.run_id}`, tone: 'state' };
    case 'agent.message':
      return { title: 'says', detail: <Body run={run} body={event.data.text} className="speech" /> };
    case 'agent.thinking':
      return {
        title: 'thinks',
        detail: <Body run={run} body={event.data.text} className="thought" />,
        tone: 'quiet',
      };
    case 'agent.output':
      return { title: event.data.stream, detail: <Body run={run} body={event.data.text} /> };
    case 'agent.tool_use':
      return {
        title: `${event.data.tool}: ${event.data.title}`,
        detail: <Body run={run} body={event.data.input} />,
        tone: 'tool',
      };
    case 'agent.tool_result':
      return {
        title: `${event.data.tool} ${event.data.ok ? 'answers' : 'failed'}`,
        detail: <Body run={run} body={event.data.output} />,
        tone: event.data.ok ? 'quiet' : 'bad',
      };
    case 'agent.file_edited':
      return {
        title: `${event.data.change} ${event.data.path}`,
        detail: <Edit run={run} body={event.data.diff} />,
        tone: 'tool',
      };
    case 'agent.waiting':
      return { title: `waits: ${event.data.reason}`, tone: 'wait' };
    case 'agent.error':
      return { title: 'error', detail: <Body run={run} body={event.data.message} />, tone: 'bad' };
    case 'agent.completed':
      return {
        title: event.data.success ? 'done' : 'gave up',
        detail: <Body run={run} body={event.data.text} className="speech" />,
        tone: 'state',
      };
    case 'message.accepted':
      return {
        title: `${event.data.from} says`,
        detail: <Body run={run} body={event.data.text} className="speech" />,
        tone: 'user',
      };
    case 'guardian.intervened':
      return {
        title: `guardian: ${event.data.kind}, by ${event.data.rule}`,
        detail: <p class="speech">{plain(event.data.detail)}</p>,
        tone: 'wait',
      };
    case 'guardian.reverted':
      return {
        title: `intervention ${event.data.intervention} was taken back, to step ${event.data.to_step}`,
        tone: 'state',
      };
    case 'usage.call':
      return {
        title: `${event.data.model}: ${event.data.input.toLocaleString('en')} in, ${event.data.output.toLocaleString('en')} out${event.data.cost_micros === null ? '' : `, ${dollars(event.data.cost_micros)}`}`,
        tone: 'quiet',
      };
    case 'usage.refused':
      return { title: `call refused: ${event.data.message}`, tone: 'bad' };
    default: {
      const rest = Object.entries(event.data)
        .filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value) && value !== '')
        .map(([key, value]) => `${key} ${value}`);
      return {
        title: `${event.type.replace('.', ' ')} ${rest.join(', ')}`.slice(0, 400),
        tone: /fail|error/.test(event.type) ? 'bad' : 'quiet',
      };
    }
  }
};

export const Entry = ({ event }: { event: RunEvent }) => {
  const { title, detail, tone = '' } = said(event);
  return (
    <li class={`entry ${tone === '' ? '' : `is-${tone}`}`} id={`event-${event.seq}`}>
      <time class="muted" title={exact(event.at)}>
        {clock(event.at)}
      </time>
      <div>
        <div class="what">{plain(title)}</div>
        {detail}
      </div>
    </li>
  );
};
