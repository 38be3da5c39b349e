import { createHash } from 'node:crypto';
import type { DialectName } from '../models/dialect.ts';

/** Fields that differ from run to run and do not change what a model is asked. */
const volatile = new Set([
  'metadata',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'client_metadata',
  'stream_options',
  'store',
]);

/** The same for requests that ask the same: whatever the order of keys, spaces, and ids of sessions. */
export function requestDigest(dialect: DialectName, path: string, body: Buffer): string {
  const parsed = parse(body.toString('utf8'));
  const kept =
    typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
      ? Object.fromEntries(Object.entries(parsed).filter(([key]) => !volatile.has(key)))
      : parsed;
  const pathname = path.split('?', 1)[0]!;
  return createHash('sha256')
    .update(JSON.stringify([dialect, pathname, sorted(kept)]))
    .digest('hex');
}

/** What is not JSON is the same where it is the same text. */
const parse = (text: string): unknown => {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
};

const sorted = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1));
  return entries.map(([key, inner]) => [key, sorted(inner)]);
};
