import { execFile } from 'node:child_process';
import { chmod, copyFile, cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon, tinyImage } from '@coppice/testkit';

const run = promisify(execFile);

/** Programs that the guide downloads, as far as its commands look at them. */
const standIns: Readonly<Record<string, string>> = {
  apk: 'test "$1" = add',
  pip: 'test "$1" = install',
  python3: 'ls /',
  npm: 'case $1 in init) echo "{}" > package.json;; install) mkdir -p "node_modules/$2";; *) exit 1;; esac',
  node: 'test -f index.js && echo "node ran"',
  // What rustup's installer leaves behind: a file to source, and a cargo on the path that it names.
  curl: `cat <<'SCRIPT'
mkdir -p "$HOME/.cargo/bin" /app
echo 'export PATH="$HOME/.cargo/bin:$PATH"' > "$HOME/.cargo/env"
printf '#!/bin/sh\\necho "   Compiling app"\\necho "    Finished release"\\n' > "$HOME/.cargo/bin/cargo"
chmod +x "$HOME/.cargo/bin/cargo"
SCRIPT`,
};

async function copyProgram(root: string, program: string): Promise<void> {
  const { stdout } = await run('ldd', [program]);
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1]!);
  for (const path of [program, ...libraries]) {
    const target = join(root, path.replace(/^\/(lib64|lib|bin)\//, '/$1/'));
    await mkdir(dirname(target), { recursive: true });
    await copyFile(path, target);
    await chmod(target, 0o755);
  }
}

/** A daemon whose default image is the small one with git in it, and stand-ins for what the guide installs. */
export async function daemonWithGit(config: Readonly<Record<string, unknown>> = {}): Promise<RunningDaemon> {
  const root = await mkdtemp(join(tmpdir(), 'coppice-git-image-'));
  try {
    await cp(await tinyImage(), root, { recursive: true, verbatimSymlinks: true });
    await chmod(root, 0o755);
    // As in most images, so that it is the one that every sandbox gets.
    await rm(join(root, 'workspace'), { recursive: true });
    for (const program of ['/usr/bin/git', '/usr/bin/base64']) await copyProgram(root, program);
    await mkdir(join(root, 'usr/lib/git-core'), { recursive: true });
    for (const name of ['git', 'git-upload-pack', 'git-receive-pack'])
      await symlink('/usr/bin/git', join(root, 'usr/lib/git-core', name));
    for (const name of ['git-upload-pack', 'git-receive-pack'])
      await symlink('git', join(root, 'usr/bin', name));
    for (const [name, script] of Object.entries(standIns))
      await writeFile(join(root, 'usr/bin', name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const daemon = await RunningDaemon.start({ image: false, config: { default_image: 'git', ...config } });
    try {
      await daemon.client.images.make({ name: 'git', source: root });
      return daemon;
    } catch (error) {
      await daemon.purge();
      throw error;
    }
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}
