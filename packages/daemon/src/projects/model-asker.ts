import { CoppiceError, createSandboxSchema, execSchema } from '@coppice/protocol';
import { internal, unlessGone, type WorkServices } from './agent-work.ts';
import { answerText, askingScript, modelRequest } from './model-request.ts';

const answerMs = 300_000;

type AskingServices = Pick<WorkServices, 'sandboxes' | 'files' | 'exec' | 'gateway'>;

export interface Asked {
  readonly text: string;
  readonly micros: number;
  readonly tokens: number;
}

/** Asks a model once, through the gateway and from a sandbox of its own, so that the call is metered and bounded like any other. */
export class ModelAsker {
  readonly #services: AskingServices;
  readonly #image: string | undefined;

  constructor(services: AskingServices, image?: string) {
    this.#services = services;
    this.#image = image;
  }

  /** `name`: of the sandbox, and of the run in the ledger of the gateway. */
  async ask(name: string, model: string, prompt: string, projectId: string): Promise<Asked> {
    const { sandboxes, files, exec, gateway } = this.#services;
    const ref = `${projectId}/${name}`;
    if (sandboxes.find(ref) !== undefined) await sandboxes.destroy(ref).catch(unlessGone);
    const { id } = await sandboxes.create(
      createSandboxSchema.parse({
        name,
        project: projectId,
        image: this.#image,
        network: { allow: ['models'] },
        labels: { judge: name },
      }),
      internal,
    );
    try {
      await gateway.setCaller(id, { run: name, agent: 'judge', project: projectId });
      const request = modelRequest(model, prompt, {});
      for (const [path, content] of [
        ['/workspace/.agent/request.json', JSON.stringify(request.body)],
        ['/workspace/.agent/ask', askingScript(request)],
      ] as const)
        await files.write(id, { path, parents: true }, one(content));
      const { exit_code, stdout, stderr } = await exec.run(
        id,
        execSchema.parse({ command: ['sh', '/workspace/.agent/ask'], timeout_ms: answerMs }),
      );
      const text = answerText(stdout);
      if (exit_code !== 0 || text === undefined)
        throw new CoppiceError(
          'unavailable',
          `the model ${model} gave no answer: ${(stderr.trim() || stdout.trim()).slice(0, 500)}`,
          { hint: 'Look at the upstreams in models.json and at `coppice costs`.' },
        );
      const { total } = await gateway.costs({ by: '', run: name }, { kind: 'admin' });
      return {
        text,
        micros: total.cost_micros,
        tokens: total.input + total.cache_read + total.output,
      };
    } finally {
      await sandboxes.destroy(id).catch(unlessGone);
    }
  }
}

async function* one(content: string): AsyncIterable<Uint8Array> {
  yield Buffer.from(content);
}
