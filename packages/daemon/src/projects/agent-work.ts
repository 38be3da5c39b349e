import {
  CoppiceError,
  createSnapshotSchema,
  hasEnded,
  type RunEvent,
  type StartRun,
  setBudgetSchema,
  startRunSchema,
} from '@coppice/protocol';
import type { RunRecord } from '../db/run-table.ts';
import type { Services } from '../services.ts';
import { readReport, reportBytes, reportPath } from './agent-report.ts';
import { answerText, askingScript, modelRequest } from './model-request.ts';
import { emptyReport, type WorkOrder, type WorkOutcome } from './work-order.ts';

export type WorkServices = Pick<
  Services,
  'sandboxes' | 'snapshots' | 'files' | 'exec' | 'compare' | 'gateway' | 'runs'
>;

const outputBytes = 262_144;
const errorBytes = 2000;
const home = '/workspace/.agent';
const workspace = '/workspace';
/** What the daemon makes for itself is nobody's quota. */
export const internal = { by: 'admin' } as const;
/** On a run: the agent of a project or of production that it is a run of. */
const agentLabel = 'coppice.agent';

/** The runs of agents of projects and of production. Each is a run like any other, and its id is the one in the book. */
export class AgentWork {
  readonly #services: WorkServices;

  constructor(services: WorkServices) {
    this.#services = services;
  }

  /** Safe to repeat: the id was written down before. */
  async start(order: WorkOrder): Promise<void> {
    await this.#services.runs.start(specOf(order), { id: order.runId });
  }

  /** What the agent finds when it starts: its files, its budget, and whose calls its calls are. */
  async prepare(order: WorkOrder, sandboxId: string): Promise<void> {
    const { gateway, files } = this.#services;
    const { runId: run, agentId: agent, projectId: project, tokenBudget: tokens } = order;
    if (order.type.needsModel && tokens !== undefined)
      await gateway.setBudget(setBudgetSchema.parse({ scope: 'run', name: run, tokens }));
    await gateway.setCaller(sandboxId, { run, agent, project });
    for (const [name, content] of filesOf(order))
      await files.write(sandboxId, { path: `${home}/${name}`, parents: true }, one(Buffer.from(content)));
  }

  /** The sandbox that it works in, once there is one. */
  sandboxOf(runId: string): string | null {
    return this.#find(runId)?.sandboxId ?? null;
  }

  isPaused(runId: string): boolean {
    return this.#find(runId)?.paused ?? false;
  }

  /** Undefined while it works. Throws where the machine ended it and not the agent. */
  async look(runId: string, asksModels: boolean): Promise<WorkOutcome | undefined> {
    const run = this.#services.runs.find(runId);
    if (!hasEnded(run.state)) return undefined;
    const { output, stderr, exited } = await this.#heard(runId);
    const outcome = { output, report: emptyReport };
    if (tookTooLong(run))
      return { ...outcome, exit: 'limit:time', summary: 'it took longer than its time limit' };
    if (run.outcome === 'cancelled') return { ...outcome, exit: 'cancelled', summary: run.reason };
    if (exited === undefined || run.sandboxId === null) throw new CoppiceError('unavailable', run.reason);
    const answer = answerText(output);
    const said = (answer ?? output).trim();
    const { report, problem } = readReport(await this.read(run.sandboxId, reportPath, reportBytes));
    const failed = run.outcome !== 'succeeded';
    const why = `exit code ${exited.exit_code ?? `of signal ${exited.signal}`}: ${stderr.trim() || said}`;
    const isOverBudget = asksModels && /limit_reached|budget/i.test(stderr + output);
    return {
      exit: !failed ? 'ok' : isOverBudget ? 'limit:tokens' : 'failed',
      summary: [failed ? why : said, ...(problem === undefined ? [] : [problem])].join('; ').slice(0, 2000),
      output: answer ?? output,
      report,
    };
  }

  /** Ends it where it works, and destroys its sandbox. Its events stay until it is erased. */
  async end(runId: string, reason: string): Promise<void> {
    const { runs } = this.#services;
    const run = this.#find(runId);
    if (run === undefined) return;
    if (!hasEnded(run.state)) await runs.stop(runId, reason);
    await runs.release(runId);
  }

  async erase(runId: string): Promise<void> {
    if (this.#find(runId) !== undefined) await this.#services.runs.remove(runId);
  }

  /** Of each agent only the events of its last runs are kept. */
  async thin(kept: number): Promise<void> {
    const { runs } = this.#services;
    const seen = new Map<string, number>();
    for (const { id, labels, ended_at, sandbox_id } of await runs.list({ label: agentLabel, limit: 1000 })) {
      const agent = labels[agentLabel]!;
      const before = seen.get(agent) ?? 0;
      seen.set(agent, before + 1);
      if (before >= kept && ended_at !== null && sandbox_id === null) await runs.remove(id);
    }
  }

  /** The state of a sandbox under that name, once. */
  async keep(sandboxId: string, name = 'end'): Promise<string> {
    const there = (await this.#services.snapshots.list({ sandbox: sandboxId })).find(
      (snapshot) => snapshot.name === name,
    );
    if (there !== undefined) return there.id;
    return (await this.#services.snapshots.create(sandboxId, createSnapshotSchema.parse({ name }), internal))
      .id;
  }

  async read(sandboxId: string, path: string, mostBytes: number): Promise<string | undefined> {
    try {
      const { bytes } = await this.#services.files.read(sandboxId, path, { length: mostBytes });
      const chunks: Buffer[] = [];
      for await (const chunk of bytes) chunks.push(chunk);
      return Buffer.concat(chunks).toString('utf8');
    } catch (error) {
      if (error instanceof CoppiceError && (error.code === 'not_found' || error.code === 'invalid_argument'))
        return undefined;
      throw error;
    }
  }

  /** A sandbox of a project, also where it is gone. */
  async removeSandbox(projectId: string, name: string): Promise<void> {
    const ref = `${projectId}/${name}`;
    if (this.#services.sandboxes.find(ref) === undefined) return;
    await this.#services.sandboxes.destroy(ref).catch(unlessGone);
  }

  async forget(snapshotId: string): Promise<void> {
    await this.#services.snapshots.delete(snapshotId).catch(unlessGone);
  }

  exists(ref: string): boolean {
    return this.#services.sandboxes.find(ref) !== undefined;
  }

  #find(runId: string): RunRecord | undefined {
    try {
      return this.#services.runs.find(runId);
    } catch (error) {
      unlessGone(error);
      return undefined;
    }
  }

  /** What it wrote, and how its process ended; undefined where nobody saw that. */
  async #heard(runId: string): Promise<{
    output: string;
    stderr: string;
    exited: Extract<RunEvent, { type: 'agent.exited' }>['data'] | undefined;
  }> {
    const texts = { stdout: '', stderr: '' };
    let exited: Extract<RunEvent, { type: 'agent.exited' }>['data'] | undefined;
    for (let after = 0; ; ) {
      const { events } = await this.#services.runs.events(runId, {
        after,
        limit: 1000,
        types: 'agent.output,agent.started,agent.exited',
      });
      for (const event of events) {
        // Only what the last process did counts.
        if (event.type === 'agent.started') exited = undefined;
        else if (event.type === 'agent.exited') exited = event.data;
        else if (event.type === 'agent.output') {
          const { stream, text } = event.data;
          const whole =
            text.ref === null ? text.text : String(await this.#services.runs.body(runId, text.ref));
          if (stream === 'stderr') texts.stderr = (texts.stderr + whole).slice(-errorBytes);
          else texts.stdout = (texts.stdout + whole).slice(0, outputBytes);
        }
      }
      const last = events.at(-1);
      if (last === undefined || events.length < 1000) break;
      after = last.seq;
    }
    return { output: texts.stdout, stderr: texts.stderr, exited };
  }
}

/** The run that does the work of an order. */
function specOf(order: WorkOrder): StartRun {
  const { type, config, projectId, agentId } = order;
  const { limits, image, snapshot } = type.file;
  const from = order.from ?? snapshot;
  const prompt = type.prompt(config, order.prompt).trim();
  return startRunSchema.parse({
    task: (prompt === '' ? type.file.title : prompt).slice(0, 65_536),
    agent: 'command',
    command: type.needsModel ? `exec sh ${home}/ask` : (type.file.command ?? 'false'),
    project: projectId,
    ...(from === undefined ? { image: order.image ?? image } : { from }),
    cpus: limits.cpus,
    memory_mb: limits.memory_mb,
    disk_mb: limits.disk_mb,
    ...(type.needsModel
      ? {
          network: { allow: ['models'] },
          ...(typeof config.model === 'string' ? { model: config.model } : {}),
        }
      : {}),
    cwd: workspace,
    timeout_s: order.timeS,
    // Each run begins from a known state, and the state that it leaves is kept: nothing goes back to what lies between.
    steps: 'none',
    labels: { [agentLabel]: agentId, ...order.labels },
    env: {
      COPPICE_PROJECT: projectId,
      COPPICE_AGENT: agentId,
      COPPICE_CASE: order.case?.id ?? '',
      ...variablesOf(config),
    },
  });
}

function filesOf(order: WorkOrder): [string, string][] {
  const { type, config, case: given } = order;
  const files: [string, string][] = [['config.json', JSON.stringify(config)]];
  if (given !== undefined) files.push(['case', given.input]);
  if (typeof config.script === 'string') files.push(['script', config.script]);
  const prompt = type.prompt(config, order.prompt);
  if (prompt === '') return files;
  const text = given === undefined || given.input === '' ? prompt : `${prompt}\n\n${given.input}`;
  files.push(['prompt.txt', text]);
  if (!type.needsModel) return files;
  const request = modelRequest(String(config.model), text, config);
  return [...files, ['request.json', JSON.stringify(request.body)], ['ask', askingScript(request)]];
}

/** Whether its time limit ended it. */
const tookTooLong = ({ spec, outcome, startedAtMs, endedAtMs, result }: RunRecord): boolean =>
  outcome === 'failed' &&
  result?.exit_code == null &&
  spec.timeout_s !== undefined &&
  startedAtMs !== null &&
  endedAtMs !== null &&
  endedAtMs - startedAtMs >= spec.timeout_s * 1000;

/** What a script reads without a parser: plain values of the configuration. The script itself is a file. */
function variablesOf(config: WorkOrder['config']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config)
      .filter(
        ([name, value]) => name !== 'script' && (typeof value === 'string' || typeof value === 'number'),
      )
      .map(([name, value]) => [`CONFIG_${name.toUpperCase().replace(/[^A-Z0-9_]/g, '_')}`, String(value)]),
  );
}

async function* one(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield bytes;
}

export function unlessGone(error: unknown): void {
  if (!(error instanceof CoppiceError && error.code === 'not_found')) throw error;
}
