import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { addLibraries, tinyImage } from './tiny-image.ts';

const run = promisify(execFile);
const installed = fileURLToPath(new URL('../../../tests/agents/toolbox/node_modules', import.meta.url));
const place = 'opt/coppice/agents';
const authorities = '/etc/ssl/certs/ca-certificates.crt';

/** The commands that an image with agents has, and where set-up put each. */
export type AgentContents = Readonly<Record<string, string>>;

/** Why agents cannot be tested on this machine; undefined where they can. */
export const missingAgents = (): string | undefined =>
  existsSync(join(installed, '.package-lock.json'))
    ? undefined
    : 'set-up could not get the agents for the tests';

/**
 * The small image with real agents in its toolbox. Files are linked and not copied: an image is made of it once for each daemon, and
 * nobody writes to it.
 */
export async function agentImage(programs: AgentContents): Promise<string> {
  const base = await tinyImage('git', 'dirname');
  const image = `${base}-agents`;
  if (existsSync(image)) return image;
  const draft = await mkdtemp(join(dirname(image), 'draft-'));
  try {
    const root = join(draft, 'root');
    await run('cp', ['-a', '--link', base, root]);
    await mkdir(join(root, place, 'bin'), { recursive: true });
    await run('cp', ['-a', '--link', installed, join(root, place, 'node_modules')]);
    for (const [program, path] of Object.entries(programs))
      await symlink(join('../node_modules', path), join(root, place, 'bin', program));
    await copyFile(process.execPath, join(root, place, 'bin/node'));
    const binaries = Object.values(programs).filter((path) => !path.endsWith('.js'));
    await addLibraries(root, [process.execPath, ...binaries.map((path) => join(installed, path))]);
    await writeFile(join(root, 'etc/nsswitch.conf'), 'hosts: files dns\n');
    // Whoever is asked for names, the gateway answers.
    await writeFile(join(root, 'etc/resolv.conf'), 'nameserver 192.0.2.53\n');
    // Programs that could speak TLS want authorities, also where they never do.
    await mkdir(join(root, dirname(authorities)), { recursive: true });
    await copyFile(authorities, join(root, authorities));
    await rename(root, image);
  } catch (error) {
    // Another process was first; its image is as good.
    if (!existsSync(image)) throw error;
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
  return image;
}
