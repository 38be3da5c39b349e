import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { Script } from 'node:vm';

export const cacheFileOf = (path: string): string => `${path}.cache`;

/** Compiles a bundle in the form of CommonJS; from what is cached of it, when V8 takes that. */
export const compileCode = (path: string, cachedData?: Buffer): Script =>
  new Script(`(function (module, exports, __dirname) {${readFileSync(path, 'utf8')}\n})`, {
    filename: path,
    ...(cachedData ? { cachedData } : {}),
  });

/**
 * Runs a bundle whose functions were all compiled when it was built. What Node caches by itself holds none of those that are compiled
 * when they are first called, which are nearly all. V8 refuses a cache of another version or with other options: then it compiles.
 */
export const loadCode = (path: string): unknown => {
  const module = { exports: {} };
  const run = compileCode(path, readFileSync(cacheFileOf(path))).runInThisContext() as (
    ...names: unknown[]
  ) => void;
  run(module, module.exports, dirname(path));
  return module.exports;
};
