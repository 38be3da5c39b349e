import { createHash } from 'node:crypto';
import type { ProjectEvaluation } from '@coppice/protocol';

/** JSON with the keys of every object in order, so that equal values are equal texts. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${canonical(inner)}`).join(',')}}`;
}

/** Of everything that was read but the opinions of the council, with the configurations that would go to production. */
export const digestOf = (
  evaluation: Omit<ProjectEvaluation, 'digest' | 'council'>,
  configurations: unknown,
): string => createHash('sha256').update(canonical({ evaluation, configurations })).digest('hex');
