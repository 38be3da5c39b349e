import type {
  Conductor,
  Intervention,
  Judgement,
  RouteBody,
  RouteResult,
  RunHealth,
} from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Who watches runs: by rules, by a model, and by their heartbeats. */
export class Guardian {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  status({ signal }: CallOptions = {}): Promise<RouteResult<'guardianStatus'>> {
    return this.#caller.call('guardianStatus', { signal });
  }

  /** Runs that do the same, or edit the same files. */
  conductor({ signal }: CallOptions = {}): Promise<Conductor> {
    return this.#caller.call('conductor', { signal });
  }

  /** What it would have done on a run that is on record. */
  dryRun(
    run: string,
    { signal, ...body }: CallOptions & RouteBody<'guardianDryRun'> = {},
  ): Promise<RouteResult<'guardianDryRun'>> {
    return this.#caller.call('guardianDryRun', { params: { run }, body, signal });
  }

  judge(run: string, { signal }: CallOptions = {}): Promise<Judgement> {
    return this.#caller.call('judgeRun', { params: { run }, signal });
  }

  intervene(run: string, input: RouteBody<'intervene'>, { signal }: CallOptions = {}): Promise<Intervention> {
    return this.#caller.call('intervene', { params: { run }, body: input, signal });
  }

  async interventions(run: string, { signal }: CallOptions = {}): Promise<Intervention[]> {
    return (await this.#caller.call('listInterventions', { params: { run }, signal })).items;
  }

  /** The run is again as it was in the step before. */
  revert(intervention: number, { signal }: CallOptions = {}): Promise<Intervention> {
    return this.#caller.call('revertIntervention', { params: { intervention }, signal });
  }

  async health({ signal }: CallOptions = {}): Promise<RunHealth[]> {
    return (await this.#caller.call('runsHealth', { signal })).items;
  }

  quarantine(run: string, reason: string, { signal }: CallOptions = {}): Promise<RunHealth> {
    return this.#caller.call('quarantineRun', { params: { run }, body: { reason }, signal });
  }

  clear(run: string, reason: string, { signal }: CallOptions = {}): Promise<RunHealth> {
    return this.#caller.call('clearRun', { params: { run }, body: { reason }, signal });
  }
}
