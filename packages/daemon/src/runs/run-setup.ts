import type { AgentProfile, AgentTemplates, Launch } from '@coppice/agents';
import {
  CoppiceError,
  type CreatedSandbox,
  type CreateSandbox,
  networkPolicySchema,
  type Sandbox,
  type StartRun,
} from '@coppice/protocol';
import type { JobInfo } from '@coppice/runtime';
import type { RunRecord } from '../db/run-table.ts';
import type { State } from '../db/state.ts';
import type { TokenRecord } from '../db/token-table.ts';
import type { ExecService } from '../inside/exec-service.ts';
import { type GuestAccess, withGuest } from '../inside/guest-access.ts';
import { toProcessRequest } from '../inside/process-request.ts';
import { helperDirectory, runSocket } from './inside-door.ts';
import type { RunLog } from './run-log.ts';

export interface RunSetupParts {
  readonly state: State;
  readonly log: RunLog;
  readonly tokens: {
    make(name: string, scope: string): { record: TokenRecord; secret: string };
    remember(record: TokenRecord): void;
    forgetScope(scope: string): void;
  };
  readonly guests: GuestAccess;
  readonly templates: AgentTemplates;
  readonly exec: ExecService;
  readonly sandboxes: {
    find(ref: string): object | undefined;
    peek(ref: string): Sandbox;
    create(
      input: CreateSandbox,
      options: { readonly signal: AbortSignal; readonly by: 'admin' },
    ): Promise<CreatedSandbox>;
  };
  readonly start: (sandboxId: string) => Promise<unknown>;
  /** Grows a sandbox of that name from a snapshot, and says its id. */
  readonly grow: (
    snapshotId: string,
    input: { readonly name: string; readonly labels: Readonly<Record<string, string>> },
    signal: AbortSignal,
  ) => Promise<string>;
}

/** Every process of a run has it, with the id of the run. */
export const markerVariable = 'COPPICE_RUN_ID';
/** Whose sandbox it is. */
const runLabel = 'coppice.run';
const cloneMs = 1_800_000;
/** Behind what the image and the caller say: it takes the place of no program. */
const reachHelper = `export PATH="$PATH:${helperDirectory}"; `;

/** Which job is the agent of which attempt: a daemon that died between starting it and writing that down finds it again. */
const markerOf = (run: RunRecord): string => `${run.id}#${run.attempt}`;

/** What a run needs before its agent works. Each step may be done again: it finds what is there. */
export class RunSetup {
  readonly #parts: RunSetupParts;

  constructor(parts: RunSetupParts) {
    this.#parts = parts;
  }

  /** The id of a sandbox that runs. */
  async sandbox(run: RunRecord, signal: AbortSignal): Promise<string> {
    const { sandboxes, state, start } = this.#parts;
    const id = run.sandboxId ?? this.made(run) ?? (await this.#make(run, signal));
    const record = state.sandboxes.byId(id);
    if (record === undefined)
      throw new CoppiceError('not_found', `the sandbox ${id} of run ${run.name} is gone`, {
        hint: 'Fork the run from one of its steps: `coppice agent fork`.',
      });
    if (record.state === 'stopped' || record.state === 'failed') await start(id);
    return sandboxes.peek(id).id;
  }

  /** The sandbox that was made for it, also where that was not written down yet. */
  made({ id }: RunRecord): string | undefined {
    return this.#parts.state.sandboxes.all().find(({ labels }) => labels[runLabel] === id)?.id;
  }

  async #make(run: RunRecord, signal: AbortSignal): Promise<string> {
    const { sandboxes } = this.#parts;
    const { spec } = run;
    if (spec.sandbox !== undefined) return sandboxes.peek(spec.sandbox).id;
    const { image, from, driver, cpus, disk_mb, pids, labels, project } = spec;
    const { network, memory_mb } = needsOf(spec, this.#parts.templates.get(spec.agent).profile);
    const given = { image, from, driver, cpus, memory_mb, disk_mb, pids, network, project };
    const name =
      sandboxes.find(project === undefined ? run.name : `${project}/${run.name}`) === undefined
        ? run.name
        : `${run.name.slice(0, 50)}-${run.id.slice(-8)}`;
    const labelled = { ...labels, [runLabel]: run.id };
    if (run.parentRunId !== null) {
      const step = this.#parts.state.runSteps.get(run.parentRunId, run.parentStep!);
      if (step?.snapshotId == null)
        throw new CoppiceError('not_found', `step ${run.parentStep} of run ${run.parentRunId} is gone`);
      return this.#parts.grow(step.snapshotId, { name, labels: labelled }, signal);
    }
    const created = await sandboxes.create(
      {
        ...(Object.fromEntries(
          Object.entries(given).filter(([, value]) => value !== undefined),
        ) as CreateSandbox),
        name,
        labels: labelled,
      },
      { signal, by: 'admin' },
    );
    return created.id;
  }

  /** The repository that the agent works in, from its origin. A clone is there whole or not at all. */
  async clone(run: RunRecord, sandboxId: string, signal: AbortSignal): Promise<void> {
    const { repo } = run.spec;
    if (repo === undefined) return;
    const script = `set -e
      if [ -d "$1/.git" ]; then exit 0; fi
      if [ -e "$1" ] && [ -n "$(ls -A "$1")" ]; then echo "$1 is there already and not empty" >&2; exit 1; fi
      rm -rf "$1.cloning"
      git clone --quiet -- "$2" "$1.cloning"
      if [ -n "$3" ]; then git -C "$1.cloning" checkout --quiet "$3" --; fi
      if [ -d "$1" ]; then rmdir "$1"; fi
      mv "$1.cloning" "$1"`;
    const result = await this.#parts.exec.run(
      sandboxId,
      {
        command: ['/bin/sh', '-c', script, 'clone', repo.path, repo.url, repo.ref ?? ''],
        env: { GIT_TERMINAL_PROMPT: '0' },
        timeout_ms: cloneMs,
        max_output_bytes: 65_536,
      },
      signal,
    );
    if (result.exit_code !== 0)
      throw new CoppiceError(
        'wrong_state',
        `${repo.url} could not be cloned: ${result.stderr.trim() || 'git said nothing'}`,
        {
          hint: 'Look at the URL, the network policy of the run and the secrets of the gateway.',
        },
      );
  }

  /** Starts the agent, or finds that a daemon before did. */
  async agent(run: RunRecord, sandboxId: string, launch: Launch): Promise<JobInfo> {
    const { guests } = this.#parts;
    return withGuest(guests, sandboxId, async (lease) => {
      const jobs = await lease.guest.listJobs();
      const found = jobs.find((job) => job.argv[3] === markerOf(run));
      if (found !== undefined) return found;
      // A step with memory brought the agent of the other run along: this run has its own.
      for (const job of jobs)
        if (job.running && run.parentRunId !== null && job.argv[3]?.startsWith(`${run.parentRunId}#`))
          await lease.guest.signalJob(job.id, 9);
      for (const file of launch.files) await this.#write(sandboxId, file);
      const secret = this.#newToken(run);
      const cwd = run.spec.cwd ?? run.spec.repo?.path;
      const [script, ...words] =
        typeof launch.command === 'string' ? [launch.command] : ['exec "$@"', ...launch.command];
      return lease.guest.startJob({
        ...toProcessRequest(lease, {
          command: ['/bin/sh', '-c', `${reachHelper}${script}`, markerOf(run), ...words],
          env: {
            ...launch.env,
            ...run.spec.env,
            [markerVariable]: run.id,
            COPPICE_RUN_TOKEN: secret,
            COPPICE_RUN_SOCKET: runSocket,
          },
          ...(cwd === undefined ? {} : { cwd }),
        }),
        keepAwake: true,
        takesInput: launch.takesInput ?? false,
      });
    });
  }

  /** Below the home of the agent's user, whoever that is. */
  async #write(sandboxId: string, { path, text }: Launch['files'][number]): Promise<void> {
    const script = 'umask 077; mkdir -p "$(dirname "$HOME/$1")"; printf %s "$2" > "$HOME/$1"';
    const result = await this.#parts.exec.run(sandboxId, {
      command: ['/bin/sh', '-c', script, 'write', path, text],
      max_output_bytes: 65_536,
    });
    if (result.exit_code !== 0)
      throw new CoppiceError(
        'wrong_state',
        `${path} of the agent could not be written: ${result.stderr.trim()}`,
      );
  }

  versionOf({ spec }: RunRecord): string | null {
    const { profile } = this.#parts.templates.get(spec.agent);
    return profile.adapter === 'command' ? null : profile.version;
  }

  /** One for each start: that of an earlier process is of no use any more. */
  #newToken(run: RunRecord): string {
    const { state, tokens } = this.#parts;
    const scope = `run:${run.id}`;
    const { record, secret } = tokens.make(`run-${run.id.slice(-16)}-${run.attempt}`, scope);
    state.transaction(() => {
      state.tokens.deleteScope(scope);
      state.tokens.insert(record);
    });
    tokens.forgetScope(scope);
    tokens.remember(record);
    return secret;
  }

  forgetToken(run: RunRecord): void {
    const { state, tokens } = this.#parts;
    const scope = `run:${run.id}`;
    state.transaction(() => state.tokens.deleteScope(scope));
    tokens.forgetScope(scope);
  }
}

/** What an agent needs that asks a model, unless somebody says otherwise. */
const needsOf = (spec: StartRun, profile: AgentProfile): Pick<StartRun, 'network' | 'memory_mb'> => {
  if (profile.adapter === 'command') return spec;
  return {
    network: spec.network ?? networkPolicySchema.parse({ allow: ['models'] }),
    memory_mb: spec.memory_mb ?? profile.memoryMb,
  };
};
