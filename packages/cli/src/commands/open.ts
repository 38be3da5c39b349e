import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cli } from '../cli.ts';
import { type DefineCommand, verb } from '../verb.ts';

/** How long a browser may take to read the file that leads it to the page. */
const handOverMs = 3_000;

const openerOf = ({ io }: Cli): string | undefined => {
  if (!io.stdout.isTTY) return undefined;
  if (process.platform === 'darwin') return 'open';
  return io.env.DISPLAY || io.env.WAYLAND_DISPLAY ? 'xdg-open' : undefined;
};

/** Everybody on the machine can read the arguments of a program, so the link goes through a file that only its owner reads. */
const showInBrowser = async (opener: string, link: string, signal: AbortSignal): Promise<void> => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-open-'));
  const file = join(directory, 'open.html');
  try {
    await writeFile(
      file,
      `<!doctype html><title>Coppice</title><meta http-equiv="refresh" content="0;url=${link}">`,
      { mode: 0o600 },
    );
    const child = spawn(opener, [file], { stdio: 'ignore', detached: true });
    child.on('error', () => {});
    child.unref();
    await sleep(handOverMs, undefined, { signal }).catch(() => {});
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'open', 'Print a link that signs a browser in to the page, once; open it on a desktop')
    .option('--print', 'only print the link')
    .action(async ({ print }: { readonly print?: boolean }) => {
      const { path, expires_at } = await cli.coppice.pageLink({ signal: cli.signal });
      const url = new URL(path, cli.url).href;
      cli.out.result({ url, expires_at }, () => url);
      const opener = print || cli.out.isJson ? undefined : openerOf(cli);
      if (opener !== undefined) await showInBrowser(opener, url, cli.signal);
    });
};
