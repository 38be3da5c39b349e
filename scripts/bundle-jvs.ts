import { execFile } from 'node:child_process';
import { join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { builtinImports } from './builtin-imports.ts';

const source = join(import.meta.dirname, '../packages/cli/src/jvs');

/** As bin/jvs starts it: what V8 caches is good for the same options only. */
export const jvsNodeOptions = ['--no-rehash-snapshot'];

const common: BuildOptions = {
  bundle: true,
  platform: 'node',
  target: 'node24',
  sourcemap: 'linked',
  legalComments: 'none',
  logLevel: 'warning',
};

/** The code, under a name that no other code has: a cache that is not of this very text must never be beside it. */
const bundleCode = async (outdir: string): Promise<string> => {
  const { metafile } = await build({
    ...common,
    format: 'cjs',
    outExtension: { '.js': '.cjs' },
    entryNames: '[dir]/[name]-[hash]',
    entryPoints: { 'chunks/jvs-run': join(source, 'run.ts') },
    define: { 'import.meta.dirname': '__dirname' },
    plugins: [builtinImports],
    outdir,
    metafile: true,
  });
  const file = Object.keys(metafile.outputs).find((name) => name.endsWith('.cjs'));
  if (!file) throw new Error('the bundle of jvs has no code');
  return resolve(file);
};

const cachedRun = (code: string): Plugin => ({
  name: 'cached-run',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\.\/run\.ts$/ }, ({ path }) => ({ path, namespace: 'cached-run' }));
    onLoad({ filter: /.*/, namespace: 'cached-run' }, () => ({
      resolveDir: import.meta.dirname,
      contents: [
        "import { loadCode } from './cached-code.ts';",
        `export const { runJvs } = loadCode(\`\${import.meta.dirname}/${code}\`);`,
      ].join('\n'),
    }));
  },
});

/** `jvs.mjs` in a directory, and beside it all that it needs but coppice-tree. */
export const bundleJvs = async (outdir: string): Promise<void> => {
  const code = await bundleCode(outdir);
  await build({
    ...common,
    format: 'esm',
    outExtension: { '.js': '.mjs' },
    entryPoints: { jvs: join(source, 'main.ts') },
    plugins: [cachedRun(relative(resolve(outdir), code)), builtinImports],
    outdir,
  });
  const cacheCode = join(import.meta.dirname, 'cache-code.ts');
  await promisify(execFile)(process.execPath, [...jvsNodeOptions, cacheCode, code]);
};
