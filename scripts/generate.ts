/**
 * Runs every generator, scripts/generate-*.ts. A generator is called as `node generate-x.ts DIR` and writes its
 * files below DIR under the paths that they have in the repository (DIR/docs/openapi.json).
 * With --check the result is only compared with what is committed.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

const readIfThere = async (path: string): Promise<string | undefined> => {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
};

const generators = (await readdir(import.meta.dirname))
  .filter((name) => /^generate-.*\.ts$/.test(name))
  .sort();
const checkOnly = process.argv.includes('--check');
const output = await mkdtemp(join(tmpdir(), 'coppice-generate-'));
const outdated: string[] = [];
try {
  for (const generator of generators) {
    await run(process.execPath, [join(import.meta.dirname, generator), output], { cwd: root });
  }
  const files = (await readdir(output, { recursive: true, withFileTypes: true }))
    .filter((found) => found.isFile())
    .map((found) => relative(output, join(found.parentPath, found.name)))
    .sort();
  for (const file of files) {
    const wanted = await readFile(join(output, file), 'utf8');
    if (wanted === (await readIfThere(join(root, file)))) continue;
    outdated.push(file);
    if (checkOnly) continue;
    await mkdir(dirname(join(root, file)), { recursive: true });
    await writeFile(join(root, file), wanted);
  }
} finally {
  await rm(output, { recursive: true, force: true });
}
for (const file of outdated) console.log(`${checkOnly ? 'out of date' : 'written'}: ${file}`);
if (checkOnly && outdated.length > 0) {
  console.log('Run `npm run generate` and commit what it writes.');
  process.exitCode = 1;
}
