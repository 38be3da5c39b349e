import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const source = join(import.meta.dirname, '../packages/web/src');

const html = (script: string, style: string, icon: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Coppice</title>
<link rel="icon" href="/assets/${icon}">
<link rel="stylesheet" href="/assets/${style}">
<script type="module" src="/assets/${script}"></script>
</head>
<body><div id="page"></div></body>
</html>
`;

/**
 * The page, in a directory: `index.html`, and files whose names hold a digest of what is in them, each also compressed.
 * What a page needs only later is in chunks of its own.
 */
export const bundleWeb = async (outdir: string): Promise<void> => {
  await mkdir(outdir, { recursive: true });
  await build({
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: ['chrome123', 'firefox128', 'safari17.5'],
    conditions: ['browser'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    splitting: true,
    entryPoints: { main: join(source, 'main.tsx') },
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    legalComments: 'none',
    logLevel: 'warning',
    outdir,
  });
  const built = await readdir(outdir);
  const named = (pattern: RegExp): string => {
    const name = built.find((file) => pattern.test(file));
    if (name === undefined) throw new Error(`the bundle of the page has no ${pattern}`);
    return name;
  };
  const script = named(/^main-\w+\.js$/);
  const icon = await readFile(join(source, 'icon.svg'));
  const iconName = `icon-${createHash('sha256').update(icon).digest('hex').slice(0, 8)}.svg`;
  await writeFile(join(outdir, iconName), icon);
  await writeFile(join(outdir, 'index.html'), html(script, named(/^main-\w+\.css$/), iconName));
  for (const name of await readdir(outdir)) {
    const path = join(outdir, name);
    await writeFile(`${path}.gz`, gzipSync(await readFile(path), { level: 9 }));
  }
};
