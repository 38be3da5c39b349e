import { readFileSync } from 'node:fs';
import { pathText } from '../index.ts';

/**
 * The words of the command as they were given. Node replaces bytes that are not UTF-8, and a file of that name could not be named;
 * here they are lone surrogates, as in all paths.
 */
export const exactArguments = (argv: readonly string[]): readonly string[] => {
  if (!argv.some((word) => word.includes('\ufffd'))) return argv;
  const bytes = readFileSync('/proc/self/cmdline');
  const words: string[] = [];
  for (let from = 0; from < bytes.length; ) {
    const end = bytes.indexOf(0, from);
    words.push(pathText(bytes.subarray(from, end)));
    from = end + 1;
  }
  return words.slice(words.length - argv.length);
};
