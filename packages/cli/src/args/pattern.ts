import { CoppiceError } from '@coppice/protocol/errors';
import type { Cli } from '../cli.ts';
import { referenceTo } from '../ui/reference.ts';

/** `*` stands for any letters, `?` for one. No name holds either, so a reference with one is a pattern. */
const isPattern = (ref: string): boolean => /[*?]/.test(ref);

const matcher = (pattern: string): RegExp =>
  new RegExp(
    `^${pattern
      .replace(/[.+^${}()|[\]\\]/g, '\\$&')
      .replaceAll('*', '[^/:]*')
      .replaceAll('?', '[^/:]')}$`,
  );

const nothing = (pattern: string): CoppiceError =>
  new CoppiceError('not_found', `${pattern} fits nothing that is there`, {
    hint: 'List what there is with `coppice ls`, and quote the pattern so that the shell leaves it alone.',
  });

const fitting = (patterns: readonly string[], names: readonly string[]): string[] => {
  const found = patterns.map((pattern) => {
    if (!isPattern(pattern)) return [pattern];
    const fits = matcher(pattern);
    const fit = names.filter((name) => fits.test(name));
    if (fit.length === 0) throw nothing(pattern);
    return fit;
  });
  return [...new Set(found.flat())];
};

/** The sandboxes that names and patterns stand for, each once, in the order given. */
export const expandSandboxes = async (cli: Cli, refs: readonly string[]): Promise<string[]> => {
  if (!refs.some(isPattern)) return [...refs];
  const sandboxes = await cli.coppice.sandboxes.list({ signal: cli.signal });
  return fitting(refs, sandboxes.map(referenceTo).sort(byNumber));
};

/** The same for `sandbox:snapshot`. */
export const expandSnapshots = async (cli: Cli, refs: readonly string[]): Promise<string[]> => {
  if (!refs.some(isPattern)) return [...refs];
  const snapshots = await cli.coppice.snapshots.list({ signal: cli.signal });
  const names = snapshots.map(
    ({ project, sandbox_name, name }) => `${referenceTo({ project, name: sandbox_name })}:${name}`,
  );
  return fitting(refs, names.sort(byNumber));
};

/** dev-2 before dev-10. */
const byNumber = new Intl.Collator('en', { numeric: true }).compare;
