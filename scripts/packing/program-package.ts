/** Lays out `coppice` as it is published: the bundles and the static programs, so that nobody needs a compiler or a checkout. */
import { chmod, cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type PackageManifest, readManifest, root, run } from './package-layout.ts';

/** Native packages stay outside of the bundles. This one brings its binaries along. */
const nativeDependency = 'better-sqlite3';

export const layOutProgram = async (directory: string): Promise<void> => {
  const [whole, cli, daemon] = await Promise.all(
    ['.', 'packages/cli', 'packages/daemon'].map((place) => readManifest(join(root, place, 'package.json'))),
  );
  await run('node', [join(root, 'scripts/build.ts'), join(directory, 'dist')]);
  await removeSourceMaps(join(directory, 'dist'));
  await copyPrograms(join(directory, 'native/build'));
  await cp(join(root, 'scripts/packing/bin'), join(directory, 'bin'), { recursive: true });
  for (const name of await readdir(join(directory, 'bin'))) await chmod(join(directory, 'bin', name), 0o755);
  const published: PackageManifest = {
    name: 'coppice',
    version: cli!.version,
    description: whole!.description,
    license: whole!.license,
    type: 'module',
    os: ['linux'],
    cpu: [process.arch],
    engines: { node: '>=24' },
    bin: { coppice: 'bin/coppice', jvs: 'bin/jvs' },
    dependencies: { [nativeDependency]: daemon!.dependencies![nativeDependency]! },
  };
  await writeFile(join(directory, 'package.json'), `${JSON.stringify(published, null, 2)}\n`);
  await cp(join(root, 'LICENSE'), join(directory, 'LICENSE'));
  await cp(join(root, 'scripts/packing/README.md'), join(directory, 'README.md'));
};

/** Every program that the build made, and nothing that it needed to make them. */
const copyPrograms = async (target: string): Promise<void> => {
  const source = join(root, 'native/build');
  await mkdir(target, { recursive: true });
  for (const name of await readdir(source)) {
    if (name.startsWith('coppice-')) await cp(join(source, name), join(target, name));
  }
};

/** They are two thirds of the size, and what they point to is in the checkout alone. */
const removeSourceMaps = async (directory: string): Promise<void> => {
  for (const name of await readdir(directory, { recursive: true })) {
    if (name.endsWith('.map')) await rm(join(directory, name));
  }
};
