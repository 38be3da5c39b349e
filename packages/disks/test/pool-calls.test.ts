import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PoolServer } from '@coppice/disks';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makeTemporaryDirectory, poolProgram, run } from './pool-fixture.ts';

let root: string;
let server: PoolServer;

beforeAll(async () => {
  root = await makeTemporaryDirectory();
  server = new PoolServer({ programPath: poolProgram });
  const fill = "import os\nos.mkdir('many')\nfor number in range(30000): open(f'many/{number}', 'w').close()";
  await run('python3', ['-c', fill], { cwd: root });
});
afterAll(async () => {
  await server.close();
  await run('rm', ['-rf', root]);
});

it('what takes long leaves room for what is quick, and ends when nobody waits for it any more', async () => {
  const caller = new AbortController();
  const calls = server.until(caller.signal);
  let done = 0;
  const copies = Array.from({ length: 12 }, (_, number) =>
    calls.call('copy', join(root, 'many'), join(root, `copy-${number}`), 'plain').finally(() => {
      done += 1;
    }),
  );
  const outcomes = Promise.allSettled(copies);
  expect(String(await server.call('probe', root))).toBeTruthy();
  expect(done).toBe(0);
  const reason = new Error('the client disconnected');
  caller.abort(reason);
  for (const outcome of await outcomes) expect(outcome).toEqual({ status: 'rejected', reason });
  // Nothing works on: what is half made can be removed at once.
  for (const name of await readdir(root))
    if (name.startsWith('copy-')) await server.call('remove', root, name);
  expect(await readdir(root)).toEqual(['many']);
  await expect(calls.call('probe', root)).rejects.toBe(reason);
});
