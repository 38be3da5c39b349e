/** Each of them reads a text once, as it begins at something that its own repetitions do not hold. */
const rules: readonly (readonly [RegExp, string])[] = [
  // https://token@host, and scheme://user:secret@host
  [/\b(https?:\/\/)[^\s/@'"]+@/gi, '$1***@'],
  [/(?<=[a-z0-9+.-]:\/\/)[^\s/@:'"]+:[^\s/@'"]+@/gi, '***@'],
  [/\b(gh[pousr]_)[A-Za-z0-9]{16,}/g, '$1***'],
  [/\b(github_pat_)[A-Za-z0-9_]{16,}/g, '$1***'],
  [/\b(glpat-)[A-Za-z0-9_-]{12,}/g, '$1***'],
  [/\b(cpt_)[A-Za-z0-9_-]{16,}/g, '$1***'],
  [/\b(authorization:\s*\w+|bearer)\s+[^\s'"]{8,}/gi, '$1 ***'],
];

/** Takes credentials out of text that goes to an agent or a log. */
export const redact = (text: string): string =>
  rules.reduce((result, [pattern, by]) => result.replace(pattern, by), text);
