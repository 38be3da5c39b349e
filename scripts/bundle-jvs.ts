import { join } from 'node:path';
import { build } from 'esbuild';

/** `jvs.mjs` in a directory: all that jvs needs but Node and coppice-tree. */
export const bundleJvs = async (outdir: string): Promise<void> => {
  await build({
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    outExtension: { '.js': '.mjs' },
    sourcemap: 'linked',
    legalComments: 'none',
    logLevel: 'warning',
    entryPoints: { jvs: join(import.meta.dirname, '../packages/workspaces/src/cli/main.ts') },
    outdir,
  });
};
