import { readFile } from 'node:fs/promises';
import type { Plugin } from 'esbuild';

const statement = /^import (?:(\w+)|\{([^}]*)\}) from '(node:[\w/]+)';$/gm;

const bindings = (names: string): string =>
  names
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name && !name.startsWith('type '))
    .map((name) => name.replace(/ as /, ': '))
    .join(', ');

/**
 * `import … from 'node:fs'` makes Node read every export of it, also those that load a stream library when they are read.
 * A short command spends more time on that than on its work, so its bundle asks for the module itself.
 */
export const builtinImports: Plugin = {
  name: 'builtin-imports',
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => ({
      loader: 'ts',
      contents: (await readFile(path, 'utf8')).replace(
        statement,
        (_all, whole: string | undefined, names: string | undefined, module: string) =>
          `const ${whole ?? `{ ${bindings(names ?? '')} }`} = process.getBuiltinModule('${module}');`,
      ),
    }));
  },
};
