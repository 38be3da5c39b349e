/**
 * Records docs/recordings/NAME.sh as NAME.cast (asciinema) and NAME.svg, on a home of its own that is gone afterwards.
 * `--render` makes the picture anew from the cast that is there.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { castText, parseCast, recordCast } from './recording/record-cast.ts';
import { renderSvg } from './recording/render-svg.ts';

const root = join(import.meta.dirname, '..');
const words = process.argv.slice(2);
const isOnlyRendered = words[0] === '--render';
const [name, ...rest] = isOnlyRendered ? words.slice(1) : words;
if (name === undefined || rest.length > 0) {
  console.error('usage: scripts/record [--render] NAME, where docs/recordings/NAME.sh is');
  process.exit(2);
}
const file = (ending: string): string => join(root, 'docs/recordings', `${name}.${ending}`);

const record = async (): Promise<void> => {
  const home = mkdtempSync(join(tmpdir(), 'coppice-record-'));
  const env = {
    ...process.env,
    COPPICE_HOME: home,
    PATH: `${join(root, 'bin')}:${process.env.PATH}`,
    BASH_ENV: '',
  };
  const coppice = (...args: string[]): void =>
    void execFileSync(join(root, 'bin/coppice'), args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
  writeFileSync(join(home, 'config.json'), JSON.stringify({ listen: { port: 0 } }));
  try {
    coppice('up', '--detach');
    // The image is made once on a machine; a recording shows what comes after that.
    coppice('images', 'build', 'host');
    const cast = await recordCast(readFileSync(file('sh'), 'utf8'), {
      width: 100,
      height: 21,
      cwd: root,
      env,
    });
    writeFileSync(file('cast'), castText(cast));
  } finally {
    coppice('down', '--purge', '--yes');
    rmSync(home, { recursive: true, force: true });
  }
};

/** The first line says what is shown. */
const title = (readFileSync(file('sh'), 'utf8').split('\n')[0] ?? name).replace(/^# /, '');
if (!isOnlyRendered) await record();
writeFileSync(file('svg'), await renderSvg(parseCast(readFileSync(file('cast'), 'utf8')), title));
console.log(file('svg'));
