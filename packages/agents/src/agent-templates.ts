import {
  type AgentTemplateView,
  agentNameSchema,
  CoppiceError,
  environmentSchema,
  imageRefSchema,
  modelNameSchema,
  sandboxLimits,
  snapshotRefSchema,
} from '@coppice/protocol';
import { TemplateFiles } from '@coppice/protocol/template-files';
import { z } from 'zod';
import type { AgentProfile } from './profile.ts';
import { profiles } from './profiles.ts';

/** Below the home of the agent's user, and nowhere else. */
const filePathSchema = z
  .string()
  .max(255)
  .regex(/^(?!\/)(?!.*(^|\/)\.\.(\/|$))[A-Za-z0-9._/-]+$/, 'must be a path below the home directory');

/** An agent of the operator's own, as its file says it: one of those that ship, and what is different about it. */
const fileSchema = z.strictObject({
  name: agentNameSchema,
  /** All that is left out is as in this one. */
  base: agentNameSchema,
  title: z.string().min(1).max(120).optional(),
  /** Where its sandboxes come from. */
  image: imageRefSchema.optional(),
  snapshot: snapshotRefSchema.optional(),
  /** A command line for the base `command`, else words. */
  command: z.union([z.string().min(1).max(65_536), z.array(z.string().max(4096)).min(1).max(100)]).optional(),
  /** Besides those of the base. */
  env: environmentSchema.optional(),
  files: z.record(filePathSchema, z.string().max(65_536)).optional(),
  model: modelNameSchema.optional(),
  /** What it is answered when it asks whether it may do something. */
  permissions: z.enum(['allow', 'deny']).optional(),
  limits: z
    .strictObject({
      cpus: sandboxLimits.cpus.optional(),
      memory_mb: sandboxLimits.memory_mb.optional(),
      disk_mb: sandboxLimits.disk_mb.optional(),
      pids: sandboxLimits.pids.optional(),
      /** A run fails when it works for longer. */
      time_s: z.int().min(1).max(2_592_000).optional(),
    })
    .default({}),
});
type TemplateFile = z.output<typeof fileSchema>;

export interface AgentTemplate extends Pick<TemplateFile, 'image' | 'snapshot' | 'limits'> {
  readonly profile: AgentProfile;
  /** Of what the operator wrote; null for what ships. */
  readonly base: string | null;
  readonly file: string | null;
}

const shipped: readonly AgentTemplate[] = Object.values(profiles).map((profile) => ({
  profile,
  base: null,
  file: null,
  limits: {},
}));

/** The agents that ship, and those in a directory of the operator. */
export class AgentTemplates {
  readonly #files: TemplateFiles<AgentTemplate>;

  constructor(directory: string) {
    this.#files = new TemplateFiles({
      directory,
      shipped,
      read: readTemplate,
      nameOf: ({ profile }) => profile.name,
      what: 'agent',
    });
  }

  get(name: string): AgentTemplate {
    return this.#files.get(name);
  }

  views(): AgentTemplateView[] {
    return this.#files.list().map(viewOf);
  }
}

function readTemplate(content: unknown, where: string): AgentTemplate {
  const refuse = (said: string): CoppiceError =>
    new CoppiceError('invalid_argument', `the agent in ${where} is refused: ${said}`, {
      hint: 'Correct the file, or remove it.',
    });
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!;
    throw refuse([path.join('.'), message].filter((part) => part !== '').join(': '));
  }
  const { data: file } = parsed;
  const base = profiles[file.base];
  if (base === undefined)
    throw refuse(`base: there is no agent ${file.base} that ships (${Object.keys(profiles).join(', ')})`);
  if (file.image !== undefined && file.snapshot !== undefined)
    throw refuse('image and snapshot: a sandbox comes from one of them');
  return { profile: changed(base, file, refuse), base: file.base, file: where, ...placeOf(file) };
}

const placeOf = ({ image, snapshot, limits }: TemplateFile) => ({
  ...(image === undefined ? {} : { image }),
  ...(snapshot === undefined ? {} : { snapshot }),
  limits,
});

function changed(
  base: AgentProfile,
  file: TemplateFile,
  refuse: (said: string) => CoppiceError,
): AgentProfile {
  const { name, title = base.title, command, env, files, model, permissions } = file;
  if (base.adapter === 'command') {
    const useless = Object.entries({ env, files, model, permissions }).find(
      ([, value]) => value !== undefined,
    );
    if (useless !== undefined) throw refuse(`${useless[0]}: means nothing to the base ${base.name}`);
    if (Array.isArray(command)) throw refuse(`command: is a command line for the base ${base.name}`);
    return { ...base, name, title, ...(command === undefined ? {} : { command }) };
  }
  if (typeof command === 'string') throw refuse(`command: is a list of words for the base ${base.name}`);
  return {
    ...base,
    name,
    title,
    ...(command === undefined ? {} : { command }),
    env: { ...base.env, ...env },
    files: { ...base.files, ...files },
    model: model ?? base.model,
    memoryMb: file.limits.memory_mb ?? base.memoryMb,
    permissions: permissions ?? base.permissions,
  };
}

const viewOf = ({ profile, base, file, image, snapshot, limits }: AgentTemplate): AgentTemplateView => {
  const asks = profile.adapter === 'command' ? undefined : profile;
  return {
    name: profile.name,
    title: profile.title,
    adapter: profile.adapter,
    base,
    file,
    version: asks?.version ?? null,
    licence: asks?.licence ?? null,
    proprietary: asks?.isProprietary ?? false,
    packages: { ...asks?.packages },
    model: asks?.model ?? null,
    permissions: asks?.permissions ?? null,
    image: image ?? null,
    snapshot: snapshot ?? null,
    memory_mb: limits.memory_mb ?? asks?.memoryMb ?? null,
    time_s: limits.time_s ?? null,
  };
};
