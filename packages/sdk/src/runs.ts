import type {
  AgentTemplateView,
  Race,
  RouteBody,
  RouteQuery,
  RouteResult,
  Run,
  RunDetail,
  RunEvent,
  RunMessage,
  RunResult,
  RunStep,
} from '@coppice/protocol';
import { joinBytes, textOfBytes } from './connection/bytes.ts';
import type { Caller, CallOptions } from './connection/caller.ts';
import { pause, resumed } from './events.ts';
import { RunWebhooks } from './run-webhooks.ts';

const racePollMs = 200;

interface RunEventFilter extends CallOptions {
  /** Events after this number; 0 for all. */
  readonly after?: number;
  /** Types with commas between; `agent.*` is all of agents. */
  readonly types?: string;
}

/** Agents at work. Every `run` is an id or a name. */
export class Runs {
  readonly webhooks: RunWebhooks;
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
    this.webhooks = new RunWebhooks(caller);
  }

  /** Answers at once; `events` tells how it goes, `wait` when it has ended. */
  start(body: RouteBody<'startRun'>, { signal }: CallOptions = {}): Promise<Run> {
    return this.#caller.call('startRun', { body, signal });
  }

  /** Those that can be started: what ships, and what the operator has in files. */
  async agents({ signal }: CallOptions = {}): Promise<AgentTemplateView[]> {
    return (await this.#caller.call('listAgents', { signal })).items;
  }

  async list({ signal, ...query }: RouteQuery<'listRuns'> & CallOptions = {}): Promise<Run[]> {
    return (await this.#caller.call('listRuns', { query, signal })).items;
  }

  get(run: string, { signal }: CallOptions = {}): Promise<RunDetail> {
    return this.#caller.call('getRun', { params: { run }, signal });
  }

  async remove(run: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeRun', { params: { run }, signal });
  }

  result(run: string, { signal }: CallOptions = {}): Promise<RunResult> {
    return this.#caller.call('getRunResult', { params: { run }, signal });
  }

  /** Settles when the run has ended. */
  async wait(run: string, { signal }: CallOptions = {}): Promise<RunDetail> {
    for await (const event of this.events(run, { types: 'run.state', signal })) {
      if (event.type !== 'run.state' || (event.data.to !== 'completed' && event.data.to !== 'failed'))
        continue;
      const found = await this.get(run, { signal });
      // It may have been taken up again since.
      if (found.ended_at !== null) return found;
    }
    return this.get(run, { signal });
  }

  async listEvents(
    run: string,
    { signal, ...query }: RunEventFilter & { readonly limit?: number } = {},
  ): Promise<{ events: RunEvent[]; last_seq: number }> {
    const found = await this.#caller.call('listRunEvents', { params: { run }, query, signal });
    return found as { events: RunEvent[]; last_seq: number };
  }

  /** As they happen, without a gap also when the daemon restarts. Ends when the loop is left, the signal fires or the run is removed. */
  events(
    run: string,
    { after = 0, types, signal }: RunEventFilter = {},
  ): AsyncGenerator<RunEvent, void, undefined> {
    return resumed<RunEvent>(after, signal, (last) =>
      this.#caller.events('streamRunEvents', { params: { run }, query: { after: last, types }, signal }),
    );
  }

  /** The whole of a text that an event only has the beginning of; `ref` names it. */
  async body(run: string, ref: string, { signal }: CallOptions = {}): Promise<string> {
    const parts: Uint8Array[] = [];
    for await (const part of this.#caller.bytes('readRunBody', { params: { run, body: ref }, signal }))
      parts.push(part);
    return textOfBytes(joinBytes(parts));
  }

  trajectory(
    run: string,
    { signal, ...query }: RouteQuery<'getTrajectory'> & CallOptions = {},
  ): Promise<RouteResult<'getTrajectory'>> {
    return this.#caller.call('getTrajectory', { params: { run }, query, signal });
  }

  /** `urgency`: queue waits for the end of the turn, steer goes into it, now by force where that takes too long. */
  tell(
    run: string,
    text: string,
    { signal, ...options }: Omit<RouteBody<'tellRun'>, 'text'> & CallOptions = {},
  ): Promise<RunMessage> {
    return this.#caller.call('tellRun', { params: { run }, body: { text, ...options }, signal });
  }

  async messages(run: string, { signal }: CallOptions = {}): Promise<RunMessage[]> {
    return (await this.#caller.call('listRunMessages', { params: { run }, signal })).items;
  }

  withdraw(run: string, message: string, { signal }: CallOptions = {}): Promise<RunMessage> {
    return this.#caller.call('withdrawMessage', { params: { run, message }, signal });
  }

  interrupt(run: string, { reason, signal }: { readonly reason?: string } & CallOptions = {}): Promise<Run> {
    return this.#caller.call('interruptRun', { params: { run }, body: { reason }, signal });
  }

  pause(run: string, { signal }: CallOptions = {}): Promise<Run> {
    return this.#caller.call('pauseRun', { params: { run }, signal });
  }

  resume(run: string, { signal }: CallOptions = {}): Promise<Run> {
    return this.#caller.call('resumeRun', { params: { run }, signal });
  }

  stop(run: string, { reason, signal }: { readonly reason?: string } & CallOptions = {}): Promise<Run> {
    return this.#caller.call('stopRun', { params: { run }, body: { reason }, signal });
  }

  async steps(run: string, { signal }: CallOptions = {}): Promise<RunStep[]> {
    return (await this.#caller.call('listSteps', { params: { run }, signal })).items;
  }

  takeStep(run: string, { title, signal }: { readonly title?: string } & CallOptions = {}): Promise<RunStep> {
    return this.#caller.call('takeStep', { params: { run }, body: { title }, signal });
  }

  /** Files and conversation as they were at that step; the run goes on from there. */
  rewind(
    run: string,
    to: number,
    { message, signal }: { readonly message?: string } & CallOptions = {},
  ): Promise<Run> {
    return this.#caller.call('rewindRun', { params: { run }, body: { to, message }, signal });
  }

  /** Another run from a step of this one: the last unless told otherwise. */
  fork(run: string, { signal, ...body }: RouteBody<'forkRun'> & CallOptions = {}): Promise<Run> {
    return this.#caller.call('forkRun', { params: { run }, body, signal });
  }

  /** Forks of one step, judged when each has ended; what the best changed is merged. Answers at once; `waitForRace` when it is over. */
  race(run: string, { signal, ...body }: RouteBody<'raceRun'> & CallOptions): Promise<Race> {
    return this.#caller.call('raceRun', { params: { run }, body, signal });
  }

  async races(run: string, { signal }: CallOptions = {}): Promise<Race[]> {
    return (await this.#caller.call('listRaces', { params: { run }, signal })).items;
  }

  getRace(run: string, race: number, { signal }: CallOptions = {}): Promise<Race> {
    return this.#caller.call('getRace', { params: { run, race }, signal });
  }

  async waitForRace(run: string, race: number, { signal }: CallOptions = {}): Promise<Race> {
    for (;;) {
      const found = await this.getRace(run, race, { signal });
      if (found.state !== 'running') return found;
      await pause(racePollMs, signal);
    }
  }

  compare(a: string, b: string, { signal }: CallOptions = {}): Promise<RouteResult<'compareRuns'>> {
    return this.#caller.call('compareRuns', { query: { a, b }, signal });
  }
}
