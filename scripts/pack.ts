/** Makes the packages that people install, as npm would publish them, in the directory given (default: dist/npm). */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { root, run } from './packing/package-layout.ts';
import { layOutProgram } from './packing/program-package.ts';
import { layOutSdk } from './packing/sdk-package.ts';

const output = resolve(process.argv[2] ?? join(root, 'dist/npm'));
await mkdir(output, { recursive: true });

const pack = async (layOut: (directory: string) => Promise<void>): Promise<void> => {
  const directory = await mkdtemp(join(output, '.layout-'));
  try {
    await layOut(directory);
    const packed = await run('npm', ['pack', '--silent', '--pack-destination', output], directory);
    console.log(join(output, packed.trim()));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
};

await pack(layOutSdk);
await pack(layOutProgram);
