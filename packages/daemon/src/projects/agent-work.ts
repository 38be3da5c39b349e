import {
  CoppiceError,
  createSandboxSchema,
  createSnapshotSchema,
  setBudgetSchema,
  startJobSchema,
} from '@coppice/protocol';
import type { Services } from '../services.ts';
import { readReport, reportBytes, reportPath } from './agent-report.ts';
import { answerText, askingScript, modelRequest } from './model-request.ts';
import { emptyReport, type WorkOrder, type WorkOutcome } from './work-order.ts';

export type WorkServices = Pick<
  Services,
  'sandboxes' | 'snapshots' | 'files' | 'jobs' | 'exec' | 'compare' | 'gateway'
>;

const outputBytes = 262_144;
const home = '/workspace/.agent';
/** What the daemon makes for itself is nobody's quota. */
export const internal = { by: 'admin' } as const;

/** Drives one run in its sandbox. Every step can be done again after the daemon died in it: the name of the sandbox is the run's. */
export class AgentWork {
  readonly #services: WorkServices;

  constructor(services: WorkServices) {
    this.#services = services;
  }

  /** A sandbox of its own with what the agent needs in it. One that a killed daemon left half made is made anew. */
  async prepare(order: WorkOrder): Promise<string> {
    const { sandboxes, gateway } = this.#services;
    await this.remove(order.projectId, order.runId);
    const { limits, image, snapshot } = order.type.file;
    const from = order.from ?? snapshot;
    const created = await sandboxes.create(
      createSandboxSchema.parse({
        name: order.runId,
        project: order.projectId,
        ...(from === undefined ? { image: order.image ?? image } : { from }),
        cpus: limits.cpus,
        memory_mb: limits.memory_mb,
        disk_mb: limits.disk_mb,
        labels: { agent: order.agentId },
        ...(order.type.needsModel ? { network: { allow: ['models'] } } : {}),
      }),
      internal,
    );
    if (order.type.needsModel) {
      const { runId: run, agentId: agent, projectId: project, tokenBudget: tokens } = order;
      if (tokens !== undefined)
        await gateway.setBudget(setBudgetSchema.parse({ scope: 'run', name: run, tokens }));
      await gateway.setCaller(created.id, { run, agent, project });
    }
    for (const [name, content] of this.#filesOf(order))
      await this.#write(created.id, `${home}/${name}`, content);
    return created.id;
  }

  async start(sandboxId: string, order: WorkOrder): Promise<string> {
    const { type, config } = order;
    const job = await this.#services.jobs.start(
      sandboxId,
      startJobSchema.parse({
        command: ['sh', '-c', type.needsModel ? `exec sh ${home}/ask` : (type.file.command ?? 'false')],
        cwd: '/workspace',
        timeout_ms: order.timeS * 1000,
        keep_awake: true,
        env: {
          COPPICE_PROJECT: order.projectId,
          COPPICE_AGENT: order.agentId,
          COPPICE_RUN: order.runId,
          COPPICE_CASE: order.case?.id ?? '',
          ...variablesOf(config),
        },
      }),
    );
    return String(job.id);
  }

  /** Undefined while it works. */
  async look(sandboxId: string, job: string, asksModels: boolean): Promise<WorkOutcome | undefined> {
    const id = Number(job);
    const { running, exit } = await this.#services.jobs.get(sandboxId, id);
    if (running || exit === null) return undefined;
    const { output, stderr } = await this.#output(sandboxId, id);
    const answer = answerText(output);
    const said = (answer ?? output).trim();
    if (exit.timed_out)
      return {
        exit: 'limit:time',
        summary: 'it took longer than its time limit',
        output,
        report: emptyReport,
      };
    const { report, problem } = readReport(await this.#read(sandboxId, reportPath, reportBytes));
    const failed = exit.exit_code !== 0;
    const why = `exit code ${exit.exit_code ?? `of signal ${exit.signal}`}: ${stderr.trim() || said}`;
    return {
      exit: failed
        ? asksModels && /limit_reached|budget/i.test(stderr + output)
          ? 'limit:tokens'
          : 'failed'
        : 'ok',
      summary: [failed ? why : said, ...(problem === undefined ? [] : [problem])].join('; ').slice(0, 2000),
      output: answer ?? output,
      report,
    };
  }

  /** The state that it left, once. */
  async keep(sandboxId: string, name = 'end'): Promise<string> {
    const there = (await this.#services.snapshots.list({ sandbox: sandboxId })).find(
      (snapshot) => snapshot.name === name,
    );
    if (there !== undefined) return there.id;
    return (await this.#services.snapshots.create(sandboxId, createSnapshotSchema.parse({ name }), internal))
      .id;
  }

  async read(sandboxId: string, path: string, mostBytes: number): Promise<string | undefined> {
    return this.#read(sandboxId, path, mostBytes);
  }

  /** Also where it is gone. */
  async remove(projectId: string, name: string): Promise<void> {
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

  #filesOf(order: WorkOrder): [string, string][] {
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

  async #write(sandboxId: string, path: string, content: string): Promise<void> {
    await this.#services.files.write(sandboxId, { path, parents: true }, one(Buffer.from(content)));
  }

  async #output(sandboxId: string, job: number): Promise<{ output: string; stderr: string }> {
    const { entries } = await this.#services.jobs.readLog(sandboxId, job, {
      cursor: 0,
      max_bytes: outputBytes,
      wait_ms: 0,
    });
    const of = (stream: string): string =>
      entries
        .filter((entry) => entry.stream === stream)
        .map(({ text }) => text)
        .join('');
    return { output: of('stdout'), stderr: of('stderr').slice(-2000) };
  }

  async #read(sandboxId: string, path: string, mostBytes: number): Promise<string | undefined> {
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
}

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
