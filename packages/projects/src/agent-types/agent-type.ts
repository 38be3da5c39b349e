import { CoppiceError, evaluatorSpecSchema } from '@coppice/protocol';
import { z } from 'zod';

/** A kind of agent, as its file says it. A change of what agents do is another version. */
const agentTypeFileSchema = z.strictObject({
  name: z.string().regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be a name of small letters, digits and `_`'),
  version: z.int().min(1),
  title: z.string().min(1).max(120),
  description: z.string().max(1000),
  /** `command` starts a program; `model` sends its prompt to a model through the gateway, from inside the sandbox. */
  adapter: z.enum(['command', 'model']),
  image: z.string().min(1).max(255).optional(),
  snapshot: z.string().min(1).max(128).optional(),
  command: z.string().min(1).max(65_536).optional(),
  /** `{{name}}` stands for a parameter. */
  prompt: z.string().min(1).max(65_536).optional(),
  /** A JSON Schema of an object. */
  parameters: z.record(z.string(), z.json()),
  /** Of an agent in production; in a project tokens and money are ten times as much. */
  limits: z.strictObject({
    tokens: z.int().min(1),
    usd: z.number().min(0).optional(),
    time_s: z.int().min(1).max(86_400),
    cpus: z.number().min(0.1).optional(),
    memory_mb: z.int().min(16).optional(),
    disk_mb: z.int().min(16).optional(),
  }),
  /** How often it runs by itself; or by the value of a parameter. */
  schedule_s: z.int().min(1).nullable().default(null),
  schedule_by: z
    .strictObject({ parameter: z.string(), seconds: z.record(z.string(), z.int().min(1)) })
    .optional(),
  evaluator: evaluatorSpecSchema.default({ kind: 'exit-code' }),
});
type AgentTypeFile = z.output<typeof agentTypeFileSchema>;
export type Config = Readonly<Record<string, z.core.util.JSONType>>;

/** What every type takes besides its own parameters. */
const commonParameters = {
  token_budget: { type: 'integer', minimum: 1, maximum: 1_000_000_000 },
  schedule_s: { type: 'integer', minimum: 1, maximum: 31_536_000 },
} as const;

const modelParameters = {
  model: { type: 'string', minLength: 1, maxLength: 200, pattern: '^[A-Za-z0-9][A-Za-z0-9_.:@+/-]*$' },
  max_tokens: { type: 'integer', minimum: 1, maximum: 200_000 },
} as const;

/** How much more an agent of a project may take than one of production. */
export const sandboxBudgetFactor = 10;

export class AgentType {
  readonly file: AgentTypeFile;
  readonly #schema: z.ZodType;

  private constructor(file: AgentTypeFile) {
    this.file = file;
    this.#schema = z.fromJSONSchema(this.parameters as Parameters<typeof z.fromJSONSchema>[0]);
  }

  /** Throws what is wrong with the file. */
  static read(content: unknown, where: string): AgentType {
    const parsed = agentTypeFileSchema.safeParse(content);
    if (!parsed.success) throw refused(`the agent type in ${where}`, parsed.error, 'Correct the file.');
    const { data: file } = parsed;
    if ((file.adapter === 'command' ? file.command : file.prompt) === undefined)
      throw new CoppiceError(
        'invalid_argument',
        `the agent type in ${where} has no ${file.adapter === 'command' ? 'command' : 'prompt'}`,
        { hint: 'Correct the file.' },
      );
    try {
      return new AgentType(file);
    } catch (cause) {
      throw new CoppiceError(
        'invalid_argument',
        `the parameters of the agent type in ${where} are no JSON Schema: ${(cause as Error).message}`,
        { hint: 'Correct the file.', cause },
      );
    }
  }

  get needsModel(): boolean {
    return this.file.adapter === 'model';
  }

  /** The schema of a configuration, with what every type takes. */
  get parameters(): Record<string, z.core.util.JSONType> {
    const own = this.file.parameters as { properties?: Record<string, z.core.util.JSONType> };
    return {
      ...this.file.parameters,
      type: 'object',
      properties: {
        ...commonParameters,
        ...(this.needsModel ? modelParameters : {}),
        ...own.properties,
      },
      additionalProperties: false,
    } as Record<string, z.core.util.JSONType>;
  }

  /** With what the schema gives to parameters that are left out. */
  check(config: Config): Config {
    const parsed = this.#schema.safeParse(config);
    if (!parsed.success)
      throw refused(
        `the configuration of ${this.file.name}`,
        parsed.error,
        `See what it takes: coppice project types ${this.file.name}`,
      );
    return parsed.data as Config;
  }

  tokenBudget(config: Config, place: 'project' | 'production'): number {
    const { tokens } = this.file.limits;
    if (place === 'production') return tokens;
    return typeof config.token_budget === 'number' ? config.token_budget : tokens * sandboxBudgetFactor;
  }

  scheduleS(config: Config): number | null {
    if (typeof config.schedule_s === 'number') return config.schedule_s;
    const { schedule_by: by, schedule_s: fixed } = this.file;
    return by?.seconds[String(config[by.parameter])] ?? fixed;
  }

  prompt(config: Config, own?: string): string {
    return (own ?? this.file.prompt ?? '').replace(/\{\{([a-z0-9_]+)\}\}/g, (_all, name: string) => {
      const value = config[name];
      return value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value);
    });
  }
}

function refused(what: string, error: z.ZodError, hint: string): CoppiceError {
  const issues = error.issues.map(({ path, message }) => ({ path: path.map(String), message }));
  const said = issues.map(({ path, message }) =>
    path.length === 0 ? message : `${path.join('.')}: ${message}`,
  );
  return new CoppiceError('invalid_argument', `${what} is refused: ${said.join('; ')}`, { hint });
}
