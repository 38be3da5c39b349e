import { CoppiceError } from '@coppice/protocol';
import { findProvider } from '@pydantic/genai-prices';
import { z } from 'zod';
import type { Caller } from './caller.ts';
import type { DialectName } from './dialect.ts';

/** What is known of a kind of upstream; `vendor` is its name in the package of prices. */
const kinds = {
  anthropic: { url: 'https://api.anthropic.com', dialects: ['anthropic'], vendor: 'anthropic' },
  openai: { url: 'https://api.openai.com', dialects: ['openai-responses', 'openai-chat'], vendor: 'openai' },
  google: { url: 'https://generativelanguage.googleapis.com', dialects: ['gemini'], vendor: 'google' },
  /** Says what a file tells it to, in every format, and asks nobody. */
  script: {
    url: 'script:',
    dialects: ['anthropic', 'openai-responses', 'openai-chat', 'gemini'],
    vendor: undefined,
  },
  'openai-compatible': { url: undefined, dialects: ['openai-chat', 'openai-responses'], vendor: undefined },
} as const satisfies Record<
  string,
  { url: string | undefined; dialects: readonly DialectName[]; vendor: string | undefined }
>;

const vendorOfDialect: Readonly<Record<DialectName, string>> = {
  anthropic: 'anthropic',
  'openai-responses': 'openai',
  'openai-chat': 'openai',
  gemini: 'google',
};

const name = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, 'lower-case letters, digits and dashes');
const pattern = z.string().min(1).max(200);

const upstreamSchema = z.strictObject({
  name,
  kind: z.enum(['anthropic', 'openai', 'google', 'openai-compatible', 'script']),
  /** The file with its answers, for the kind `script`; from the directory of models.json on. */
  script: z.string().min(1).optional(),
  /** Where it is, without `/v1`. The vendors' own addresses are known. */
  url: z.url({ protocol: /^https?$/ }).optional(),
  /** The name of the secret that holds its key. Without one, no key is sent. */
  secret: z.string().min(1).optional(),
  /** Which models it serves; `*` at the end stands for any rest. */
  models: z.array(pattern).min(1).default(['*']),
  /** The name under which the package of prices knows it, where that is not its kind. */
  prices: z.string().min(1).optional(),
  /** How often a request is sent again to this upstream before the next one is tried. */
  retries: z.int().min(0).max(10).default(2),
  /** The longest wait that an upstream may ask for between tries. If it asks for more, its answer is passed on. */
  max_retry_wait_s: z.number().min(0).max(600).default(20),
  first_byte_timeout_s: z.number().positive().max(3600).default(600),
  /** How long an answer may pause. */
  stall_timeout_s: z.number().positive().max(3600).default(300),
});

const policySchema = z.strictObject({
  /** Models that may be asked for; `*` at the end stands for any rest. */
  allow: z.array(pattern).optional(),
  /** Other names of models: what is asked for, and what the upstream gets. Aliases are always allowed. */
  aliases: z.record(pattern, pattern).optional(),
  /** Names of upstreams in the order in which they are tried. All, in their own order, where it is left out. */
  upstreams: z.array(name).min(1).optional(),
});

export const modelsConfigSchema = z.strictObject({
  upstreams: z.array(upstreamSchema),
  /** For whoever is in no project, and for what a project does not say. */
  default: policySchema.default({}),
  projects: z.record(z.string().min(1), policySchema).default({}),
});
export type ModelsConfig = z.input<typeof modelsConfigSchema>;
export type Upstream = z.output<typeof upstreamSchema>;

export interface Choice {
  /** The name to ask the upstream for. */
  readonly model: string;
  /** In the order in which they are tried; never empty. */
  readonly upstreams: readonly Upstream[];
}

const matches = (patterns: readonly string[], text: string): boolean =>
  patterns.some((one) => (one.endsWith('*') ? text.startsWith(one.slice(0, -1)) : one === text));

/** Who may ask for which model, and where it is asked for. */
export class Upstreams {
  readonly #config: z.output<typeof modelsConfigSchema>;

  constructor(config: unknown) {
    const parsed = modelsConfigSchema.safeParse(config);
    if (!parsed.success)
      throw new CoppiceError(
        'invalid_argument',
        `the configuration of models is wrong: ${z.prettifyError(parsed.error)}`,
      );
    this.#config = parsed.data;
    const names = this.#config.upstreams.map((upstream) => upstream.name);
    const policies = [this.#config.default, ...Object.values(this.#config.projects)];
    for (const used of policies.flatMap((policy) => policy.upstreams ?? []))
      if (!names.includes(used))
        throw new CoppiceError('invalid_argument', `the configuration of models has no upstream ${used}`);
    for (const [index, one] of names.entries())
      if (names.indexOf(one) !== index)
        throw new CoppiceError('invalid_argument', `the configuration of models has two upstreams ${one}`);
    for (const upstream of this.#config.upstreams) {
      this.baseUrl(upstream);
      if ((upstream.kind === 'script') !== (upstream.script !== undefined))
        throw new CoppiceError(
          'invalid_argument',
          `the upstream ${upstream.name}: a file in \`script\` and the kind \`script\` go together`,
        );
    }
  }

  choose(dialect: DialectName, asked: string, caller: Caller): Choice {
    const policy = this.#policy(caller);
    const alias = Object.hasOwn(policy.aliases, asked) ? policy.aliases[asked] : undefined;
    if (alias === undefined && !matches(policy.allow, asked))
      throw new CoppiceError('forbidden', `the model ${asked} is not allowed here`, {
        hint: 'GET /v1/models lists the models that are.',
      });
    const model = alias ?? asked;
    const upstreams = policy.upstreams.filter(
      (upstream) =>
        (kinds[upstream.kind].dialects as readonly DialectName[]).includes(dialect) &&
        matches(upstream.models, model),
    );
    if (upstreams.length === 0)
      throw new CoppiceError('not_found', `no upstream is configured for the model ${model} in this format`, {
        details: { dialect, model },
      });
    return { model, upstreams };
  }

  /** Every name that a caller may ask for, as far as names are known. */
  names(caller: Caller): readonly string[] {
    const policy = this.#policy(caller);
    const known = policy.upstreams.flatMap((upstream) => {
      const exact = upstream.models.filter((model) => !model.endsWith('*'));
      const vendor = this.vendor(upstream);
      const listed = vendor === undefined ? [] : (findProvider({ providerId: vendor })?.models ?? []);
      const current = listed.filter((model) => model.deprecated !== true).map((model) => model.id);
      return [...exact, ...current.filter((model) => matches(upstream.models, model))];
    });
    const exactAllowed = policy.allow.filter((model) => !model.endsWith('*'));
    const allowed = [...known, ...exactAllowed].filter((model) => matches(policy.allow, model));
    return [...new Set([...Object.keys(policy.aliases), ...allowed])];
  }

  /** As the package of prices calls it. A script speaks for the vendor of the format that it is asked in. */
  vendor(upstream: Upstream, dialect?: DialectName): string | undefined {
    const spoken = upstream.kind === 'script' && dialect !== undefined ? vendorOfDialect[dialect] : undefined;
    return upstream.prices ?? kinds[upstream.kind].vendor ?? spoken;
  }

  baseUrl(upstream: Upstream): string {
    const url = upstream.url ?? kinds[upstream.kind].url;
    if (url === undefined)
      throw new CoppiceError('invalid_argument', `the upstream ${upstream.name} needs a url`);
    return url.replace(/\/+$/, '');
  }

  #policy(caller: Caller): { allow: string[]; aliases: Record<string, string>; upstreams: Upstream[] } {
    const { projects } = this.#config;
    const own =
      caller.project !== undefined && Object.hasOwn(projects, caller.project)
        ? projects[caller.project]!
        : this.#config.default;
    const order = own.upstreams ?? this.#config.default.upstreams;
    return {
      allow: own.allow ?? this.#config.default.allow ?? ['*'],
      aliases: own.aliases ?? this.#config.default.aliases ?? {},
      upstreams:
        order === undefined
          ? this.#config.upstreams
          : order.map((used) => this.#config.upstreams.find((upstream) => upstream.name === used)!),
    };
  }
}
