import { z } from 'zod';
import { nameSchema, refSchema } from './ids.ts';

/**
 * What a field of a call refers to. The gate looks at every such field, so that a token reaches nothing through a body that it
 * does not reach through a path: a field that names a sandbox, a snapshot, a project or a run is declared with a schema of this file.
 */
export type ReferenceKind =
  | 'sandbox'
  | 'snapshot'
  | 'sandbox or snapshot'
  | 'project'
  | 'tried project'
  | 'run';

const kinds = z.registry<{ readonly kind: ReferenceKind }>();

const pattern = /^(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\/)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/;
const reference = (kind: ReferenceKind) =>
  z.string().regex(pattern, 'must be an id, a name or `project/name`').register(kinds, { kind });

/** An id, a name, or `project/name` for one of another project. */
export const sandboxRefSchema = reference('sandbox');
/** An id, `sandbox:name`, or a bare name where the call is about one sandbox. */
export const snapshotRefSchema = reference('snapshot');
export const treeRefSchema = reference('sandbox or snapshot');
/** Filled in by the gate for the tokens of a project; left out by others, it means every project, or the default one for what is made. */
export const projectRefSchema = nameSchema.clone().register(kinds, { kind: 'project' });

/** Of a call that is about one project that is tried out: its id, or the name that people gave. Tokens of a project use the id. */
export const projectNameSchema = z
  .string()
  .min(1)
  .max(120)
  .regex(/^[^\p{Cc}\p{Cf}/]+$/u, 'must be an id or a name')
  .register(kinds, { kind: 'tried project' });
export const runRefSchema = refSchema.clone().register(kinds, { kind: 'run' });

export interface ReferenceField {
  readonly name: string;
  readonly kind: ReferenceKind;
  readonly isList: boolean;
}

/** The fields of an object schema that refer to something. */
export const referencesOf = (schema: z.ZodType | undefined): readonly ReferenceField[] => {
  if (!(schema instanceof z.ZodObject)) return [];
  return Object.entries(schema.shape).flatMap(([name, field]) => {
    const found = kindOf(field as z.ZodType);
    return found === undefined ? [] : [{ name, ...found }];
  });
};

const kindOf = (field: z.ZodType): { kind: ReferenceKind; isList: boolean } | undefined => {
  const meta = kinds.get(field);
  if (meta !== undefined) return { kind: meta.kind, isList: false };
  if (field instanceof z.ZodArray) {
    const item = kindOf(field.element as z.ZodType);
    return item && { ...item, isList: true };
  }
  if (field instanceof z.ZodOptional || field instanceof z.ZodNullable || field instanceof z.ZodDefault)
    return kindOf(field.unwrap() as z.ZodType);
  return undefined;
};

/** `project/name` in its two parts. */
export const splitReference = (ref: string): { project: string | undefined; rest: string } => {
  const slash = ref.indexOf('/');
  return slash < 0
    ? { project: undefined, rest: ref }
    : { project: ref.slice(0, slash), rest: ref.slice(slash + 1) };
};
