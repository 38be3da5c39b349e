import { spawn } from 'node:child_process';

export interface RunOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly uid?: number;
  readonly gid?: number;
}

/** Runs a line of shell; answers how long it took. */
export const timeShell = async (line: string, { cwd, env, uid, gid }: RunOptions): Promise<number> => {
  const startedAt = performance.now();
  const { code, stderr } = await new Promise<{ code: number | null; stderr: string }>((resolve, reject) => {
    const child = spawn('bash', ['--norc', '-euo', 'pipefail', '-c', line], {
      cwd,
      ...(uid === undefined ? {} : { uid }),
      ...(gid === undefined ? {} : { gid }),
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let text = '';
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    child.on('error', reject);
    child.on('close', (status) => resolve({ code: status, stderr: text }));
  });
  if (code !== 0) throw new Error(`\`${line}\` ended with ${code} in ${cwd}: ${stderr}`);
  return performance.now() - startedAt;
};
