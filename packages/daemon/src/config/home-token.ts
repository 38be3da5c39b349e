import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import type { Home } from './home.ts';

/** The secret that CLI and SDK find: made at first start, for root's eyes only. */
export function homeToken(home: Home): string {
  try {
    return readFileSync(home.tokenFile, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const secret = `cpt_${randomBytes(32).toString('base64url')}`;
  writeFileSync(home.tokenFile, `${secret}\n`, { mode: 0o600, flag: 'wx' });
  return secret;
}
