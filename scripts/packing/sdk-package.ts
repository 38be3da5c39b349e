/** Lays out @coppice/sdk as it is published: ES modules for Node and for browsers, and their types. */
import { cp, mkdir, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { build } from 'esbuild';
import { type PackageManifest, readManifest, root, run } from './package-layout.ts';

/** Node 20 is the oldest that runs it; a test does so. */
const targets = ['es2022', 'node20'];

export const layOutSdk = async (directory: string): Promise<void> => {
  const sources = join(root, 'packages/sdk');
  const manifest = await readManifest(join(sources, 'package.json'));
  await build({
    entryPoints: { index: join(sources, 'src/index.ts'), browser: join(sources, 'src/index.browser.ts') },
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'neutral',
    mainFields: ['module', 'main'],
    target: targets,
    external: ['node:*', ...runTimeDependencies(manifest)],
    sourcemap: 'linked',
    legalComments: 'none',
    logLevel: 'warning',
    outdir: directory,
    chunkNames: 'chunks/[name]-[hash]',
  });
  await emitTypes(directory);
  const published: PackageManifest = {
    name: manifest.name,
    version: manifest.version,
    description:
      'The client of Coppice: sandboxes that can be snapshotted, restored, forked, compared and merged',
    license: manifest.license,
    type: 'module',
    sideEffects: false,
    engines: { node: '>=20.16' },
    exports: {
      '.': {
        browser: { types: './types/sdk/index.browser.d.ts', default: './browser.js' },
        types: './types/sdk/index.d.ts',
        default: './index.js',
      },
    },
    // zod is there for the types alone: the shapes of requests and answers are inferred from schemas.
    dependencies: { ...withoutOurs(manifest), zod: await versionOfZod() },
  };
  await writeFile(join(directory, 'package.json'), `${JSON.stringify(published, null, 2)}\n`);
  await cp(join(root, 'LICENSE'), join(directory, 'LICENSE'));
  await cp(join(sources, 'README.md'), join(directory, 'README.md'));
};

const withoutOurs = ({ dependencies = {} }: PackageManifest): Record<string, string> =>
  Object.fromEntries(Object.entries(dependencies).filter(([name]) => !name.startsWith('@coppice/')));

const runTimeDependencies = (manifest: PackageManifest): string[] => Object.keys(withoutOurs(manifest));

const versionOfZod = async (): Promise<string> => {
  const { dependencies } = await readManifest(join(root, 'packages/protocol/package.json'));
  return dependencies!.zod!;
};

/** Named one by one: what is found through node_modules gets no declarations. */
const protocolEntries = ['errors', 'index', 'socket'].map((name) => `protocol/src/${name}.ts`);

/** The declarations of the SDK and of the protocol below it, which refers to nothing else of ours. */
const emitTypes = async (directory: string): Promise<void> => {
  const types = join(directory, 'types');
  await mkdir(types, { recursive: true });
  const project = join(directory, 'tsconfig.json');
  await writeFile(
    project,
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      compilerOptions: {
        noEmit: false,
        declaration: true,
        emitDeclarationOnly: true,
        rewriteRelativeImportExtensions: true,
        rootDir: join(root, 'packages'),
        outDir: types,
        typeRoots: [join(root, 'node_modules/@types')],
      },
      include: [],
      files: ['sdk/src/index.ts', 'sdk/src/index.browser.ts', ...protocolEntries].map((file) =>
        join(root, 'packages', file),
      ),
    }),
  );
  await run('tsc', ['-p', project]);
  await rm(project);
  for (const name of ['sdk', 'protocol']) {
    await rename(join(types, name), join(types, 'whole'));
    await rename(join(types, 'whole/src'), join(types, name));
    await rmdir(join(types, 'whole'));
  }
  for (const entry of await readdir(types, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) await pointInside(join(entry.parentPath, entry.name), types);
  }
};

/** In the package the protocol is a folder, and a declaration is found beside its module. */
const pointInside = async (file: string, types: string): Promise<void> => {
  const text = await readFile(file, 'utf8');
  const protocol = relative(dirname(file), join(types, 'protocol')) || '.';
  const inside = protocol.startsWith('.') ? protocol : `./${protocol}`;
  await writeFile(
    file,
    text
      .replaceAll(/(['"])@coppice\/protocol\/(\w+)\1/g, `$1${inside}/$2.js$1`)
      .replaceAll(/(['"])@coppice\/protocol\1/g, `$1${inside}/index.js$1`)
      .replaceAll(/(from\s+['"]|import\(['"])(\.[^'"]*)\.ts(['"])/g, '$1$2.js$3'),
  );
};
