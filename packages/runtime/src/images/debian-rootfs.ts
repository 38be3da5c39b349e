import { CoppiceError } from '@coppice/protocol';
import { runProgram } from '../programs/run-program.ts';
import { extractFromProgram } from './extract-from-program.ts';
import type { ExtractOptions } from './extract-rootfs.ts';
import { hostnameLink, synthesisedFiles } from './host-etc.ts';
import type { BuiltRootfs } from './image.ts';

/** The suite of an image name like `debian:bookworm`; undefined for other names, as `debian:12-slim` of a registry. */
export function debianSuite(name: string): string | undefined {
  const suite = /^debian:([a-z]{2,20})$/.exec(name)?.[1];
  return suite === 'latest' ? undefined : suite;
}

/** Builds a minimal Debian from the archive that this machine's own apt is set to use. */
export async function buildDebianRootfs(
  suite: string,
  rootfs: string,
  options: ExtractOptions,
): Promise<BuiltRootfs> {
  await checkInstalled();
  const [mirror, settings] = await Promise.all([findMirror(), aptSettings()]);
  options.onProgress?.({ phase: `fetching packages of ${suite}`, done: 0, total: null, unit: 'bytes' });
  const { warnings } = await extractFromProgram(
    [
      'mmdebstrap',
      '--variant=minbase',
      '--format=tar',
      '--include=ca-certificates',
      // Sandboxes have a /dev of their own, and no image of ours holds device nodes.
      '--skip=output/dev',
      ...settings.map((setting) => `--aptopt=${setting}`),
      ...customisation(),
      suite,
      '-',
      mirror,
    ],
    rootfs,
    options,
    ({ exitCode, stderr }) => {
      if (exitCode === 0) return;
      throw new CoppiceError(
        'unavailable',
        `mmdebstrap could not build debian:${suite}: ${lastLines(stderr)}`,
        {
          hint: 'Check that the suite exists in the archive that apt uses on this machine, and that it can be reached.',
        },
      );
    },
  );
  return { source: { kind: 'debian', suite }, warnings };
}

/** The account that sandboxes work as, and none of the machine's own names, which mmdebstrap copies in for its work. */
function customisation(): string[] {
  const texts = synthesisedFiles.filter(({ path }) => ['etc/resolv.conf', 'etc/hosts'].includes(path));
  const [name, target] = hostnameLink;
  return [
    'chroot "$1" useradd --create-home --uid 1000 --user-group --shell /bin/bash user',
    `ln -sf '${target}' "$1/${name}"`,
    ...texts.map(({ path, text }) => `rm -f "$1/${path}"; printf %s '${text}' > "$1/${path}"`),
  ].map((command) => `--customize-hook=${command}`);
}

async function checkInstalled(): Promise<void> {
  try {
    await runProgram(['mmdebstrap', '--version']);
  } catch (cause) {
    throw new CoppiceError(
      'unsupported',
      'Debian images need the program mmdebstrap, which is not installed',
      {
        hint: 'Install it with `apt-get install mmdebstrap`, then try again; or import an image from a tar.',
        cause,
      },
    );
  }
}

/** apt itself says what it is set to use, in whichever form its sources are written. */
async function findMirror(): Promise<string> {
  const { stdout } = await runProgram([
    'apt-get',
    'indextargets',
    '--format',
    '$(REPO_URI) $(RELEASE) $(COMPONENT)',
    'Created-By: Packages',
  ]);
  for (const line of stdout.split('\n')) {
    const [uri = '', release = '', component] = line.split(' ');
    if (component !== 'main' || !/^[a-z]+$/.test(release)) continue;
    if (new URL(uri).password === '' && new URL(uri).username === '') return uri;
  }
  throw new CoppiceError(
    'unsupported',
    'apt on this machine has no Debian archive set up that needs no password',
    {
      hint: 'Add one to /etc/apt/sources.list, or import an image from a tar instead.',
    },
  );
}

async function aptSettings(): Promise<string[]> {
  const { stdout } = await runProgram([
    'apt-config',
    'dump',
    'Acquire::Check-Valid-Until',
    'Acquire::http::Proxy',
  ]);
  // A proxy that needs a password stays out: the setting becomes part of the image.
  return stdout.split('\n').filter((line) => /^Acquire::[A-Za-z:-]+ "[^"@]+";$/.test(line));
}

const lastLines = (text: string): string => text.trim().split('\n').slice(-4).join('; ').slice(0, 800);
