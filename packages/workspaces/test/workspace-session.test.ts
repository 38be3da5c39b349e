import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PlainDirectory } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createWorkspace } from '../src/workspace/create-workspace.ts';
import { Workspace } from '../src/workspace/workspace.ts';

let directory: PlainDirectory;
let home: string;
let payload: string;

beforeAll(async () => {
  directory = await PlainDirectory.make('coppice-session-');
  home = directory.path;
  await createWorkspace({ parent: home, name: 'ws', notice: () => undefined });
  payload = join(home, 'ws/main');
});
afterAll(() => directory[Symbol.asyncDispose]());

test('a program goes on with its workspace after a refusal, and after an error among the files', async () => {
  using workspace = await Workspace.open({ directory: payload, env: {} });
  await writeFile(join(payload, 'f'), 'one');
  const first = await workspace.snapshot({ note: 'first' });
  // Refused while the locks are held: they must not stay.
  await expect(workspace.snapshot({ tags: ['no good tag'] })).rejects.toMatchObject({
    code: 'invalid_argument',
  });
  await writeFile(join(payload, 'f'), 'two');
  const second = await workspace.snapshot({ note: 'second' });
  expect((await workspace.planCollection()).to_delete).toEqual([]);
  // Content that is gone from the store ends the program that touches files; the next call gets a new one.
  await rm(join(home, 'ws/.jvs/packs', `${first.root.split(':')[1]}.pack`));
  await expect(workspace.restore(first)).rejects.toMatchObject({ code: 'corrupt' });
  expect(await readFile(join(payload, 'f'), 'utf8')).toBe('two');
  await writeFile(join(payload, 'f'), 'three');
  await workspace.restore(second);
  expect(await readFile(join(payload, 'f'), 'utf8')).toBe('two');
  expect((await workspace.verify([second]))[0]?.ok).toBe(true);
  await workspace.fork('side', second);
  expect(workspace.session.state.worktrees.has('side')).toBe(true);
});
