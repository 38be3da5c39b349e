/**
 * Bundles the three programs into dist/, and what the daemon runs in threads. A bundle starts in a fraction of the time that the same program takes
 * from its many source files, and it can be replaced while an older copy of it runs.
 */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { type BuildOptions, build } from 'esbuild';
import { bundleJvs } from './bundle-jvs.ts';
import { bundleWeb } from './bundle-web.ts';

const root = join(import.meta.dirname, '..');
/** Where the bundles go: the directory given, or dist/ of the checkout. */
const dist = resolve(process.argv[2] ?? join(root, 'dist'));
const staleChunkMs = 24 * 60 * 60 * 1000;

const entry = (source: string): string => {
  const path = join(root, source);
  if (!existsSync(path)) throw new Error(`${source} is not there: nothing to bundle`);
  return path;
};

/** Native packages load a file from beside themselves, so they stay in node_modules. */
const external = ['better-sqlite3', '@napi-rs/blake-hash'];

/** CommonJS packages inside an ES module bundle ask for `require` and `__dirname`. */
const banner = [
  "import { createRequire as coppiceCreateRequire } from 'node:module';",
  'const require = coppiceCreateRequire(import.meta.url);',
  'const __filename = import.meta.filename;',
  'const __dirname = import.meta.dirname;',
].join('\n');

const common: BuildOptions = {
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  outExtension: { '.js': '.mjs' },
  sourcemap: 'linked',
  legalComments: 'none',
  logLevel: 'warning',
  external,
  banner: { js: banner },
};

const filesBelow = async (directory: string): Promise<string[]> =>
  (await readdir(directory, { recursive: true, withFileTypes: true }))
    .filter((found) => found.isFile())
    .map((found) => relative(directory, join(found.parentPath, found.name)));

/** Chunks go first and entries last, each by a rename: a start at any moment finds a whole program. */
const publish = async (from: string): Promise<void> => {
  const isEntry = (file: string): boolean => !file.startsWith('chunks');
  const files = (await filesBelow(from)).sort((a, b) => Number(isEntry(a)) - Number(isEntry(b)));
  await mkdir(join(dist, 'chunks'), { recursive: true });
  // A daemon reads the whole page when it starts, so nobody asks for the files of an earlier build.
  await rm(join(dist, 'web'), { recursive: true, force: true });
  for (const file of files) {
    await mkdir(dirname(join(dist, file)), { recursive: true });
    await rename(join(from, file), join(dist, file));
  }
  // A command that still runs may load a chunk of an earlier build, so these go only when they are old.
  const current = new Set(files);
  for (const name of await readdir(join(dist, 'chunks'))) {
    const path = join(dist, 'chunks', name);
    if (current.has(join('chunks', name))) continue;
    if (Date.now() - (await stat(path)).mtimeMs > staleChunkMs) await rm(path, { force: true });
  }
};

await mkdir(dist, { recursive: true });
const work = await mkdtemp(join(dist, '.build-'));
try {
  await Promise.all([
    // Split, so that a command loads only what it uses.
    build({
      ...common,
      entryPoints: { coppice: entry('packages/cli/src/main.ts') },
      splitting: true,
      chunkNames: 'chunks/[name]-[hash]',
      outdir: work,
    }),
    bundleJvs(work),
    bundleWeb(join(work, 'web')),
    // In one piece, as it lives longer than any build.
    build({
      ...common,
      entryPoints: {
        gateway: entry('packages/gateway/src/main.ts'),
        daemon: entry('packages/daemon/src/main.ts'),
        'text-diff-thread': entry('packages/disks/src/layered/text-diff-thread.ts'),
      },
      outdir: work,
    }),
  ]);
  await publish(work);
} finally {
  await rm(work, { recursive: true, force: true });
}
