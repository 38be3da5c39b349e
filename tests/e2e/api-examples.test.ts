import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Route, routes } from '@coppice/protocol';
import { RunningDaemon } from '@coppice/testkit';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const known: Readonly<Record<string, Route>> = routes;

/** The examples of docs/api.md, by the call that each is of: `# METHOD /path` and the line below it. */
const examples = async (): Promise<ReadonlyMap<string, string>> => {
  const text = await readFile(join(import.meta.dirname, '../../docs/api.md'), 'utf8');
  return new Map(
    [...text.matchAll(/^# ((?:GET|POST|PUT|PATCH|DELETE) \S+)\n(curl .*)$/gm)].map(([, call, line]) => [
      call!,
      line!,
    ]),
  );
};
const callOf = (name: string): string => `${known[name]!.method} ${known[name]!.path}`;

test('every call of the API has an example for curl, but those that are WebSockets', async () => {
  const found = await examples();
  const missing = Object.keys(known).filter((name) => !found.has(callOf(name)));
  // A few hold what only the reader knows, such as the digest of an evaluation.
  expect([...found.values()].filter((line) => line.includes('…')).length).toBeLessThan(found.size / 10);
  expect(missing).toEqual(Object.keys(known).filter((name) => known[name]!.answer === 'socket'));
});

/** In an order in which each finds what it speaks of. */
const story = [
  ...['health', 'doctor', 'metrics', 'whoami', 'createToken', 'listTokens'],
  ...['createSandbox', 'listSandboxes', 'getSandbox', 'updateSandbox', 'listUsage', 'exec', 'execEvents'],
  ...['startJob', 'listJobs', 'getJob', 'readJob'],
  ...['openTerminal', 'listTerminals', 'resizeTerminal'],
  ...[
    'writeFile',
    'readFile',
    'statFile',
    'listFiles',
    'createSnapshot',
    'editFile',
    'makeDirectory',
    'downloadArchive',
  ],
  ...['diff', 'diffFile', 'diffPatch', 'listSnapshots', 'listSandboxSnapshots', 'getSnapshot', 'lineage'],
  ...['forkSandbox', 'merge', 'moveFile', 'removeFile', 'restoreSandbox'],
  ...['forwardPort', 'listPorts', 'listImages', 'listEvents', 'listRuns', 'listProjects'],
  ...['writeNote', 'readNote', 'searchNotes', 'replaceInNote', 'changeFrontmatter', 'moveNote', 'listNotes'],
  ...['createRepository', 'listRepositories', 'createIssue', 'getIssue', 'commentIssue'],
  ...['stopSandbox', 'startSandbox', 'destroySandbox'],
].filter((name) => name in known);

test('the examples work as they are printed', { timeout: 300_000 }, async () => {
  await using daemon = await RunningDaemon.start();
  const found = await examples();
  expect(story.length).toBeGreaterThan(50);
  const failed: string[] = [];
  const env = { PATH: process.env.PATH, COPPICE_URL: daemon.url, COPPICE_TOKEN: daemon.token };
  for (const name of story) {
    const line = found.get(callOf(name))!;
    await run('bash', ['--norc', '--noprofile', '-c', line], { env, encoding: 'buffer' }).catch((error) =>
      failed.push(`${name}: ${line}\n${String(error.stdout)}${String(error.stderr)}`),
    );
  }
  expect(failed).toEqual([]);
});
