import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { eventually, guestProgram } from '@coppice/testkit';
import { expect, test } from 'vitest';
import { encodeLaunchMessage, LaunchMessageReader } from '../src/drivers/container/launch-message.ts';
import { readStarted } from '../src/machine/process-identity.ts';

const launch = guestProgram('coppice-launch');
const holdSource = fileURLToPath(new URL('./container/hold-descriptors.c', import.meta.url));

/** More than the allocator of the launcher keeps aside: the second half gets the memory of the first. */
const watched = 20;

const end = async (process: ChildProcess): Promise<void> => {
  if (process.exitCode !== null || process.signalCode !== null) return;
  const ended = once(process, 'exit');
  process.kill('SIGKILL');
  await ended;
};

test('an end is announced once and for no other process, even while a fork still holds what was watched', async () => {
  await using left = new AsyncDisposableStack();
  const directory = mkdtempSync(join(tmpdir(), 'coppice-launcher-'));
  left.defer(() => rmSync(directory, { recursive: true, force: true }));
  const hold = join(directory, 'hold-descriptors');
  await promisify(execFile)('cc', ['-static', '-O1', '-o', hold, holdSource]);
  const started = (program: string, args: string[]): ChildProcess => {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    left.defer(() => end(child));
    return child;
  };

  const server = started(launch, ['serve', '--bwrap', '/bin/true', '--agent', '/bin/true']);
  const reader = new LaunchMessageReader();
  const heard: Map<string, string>[] = [];
  server.stdout!.on('data', (chunk: Buffer) => heard.push(...reader.push(chunk)));
  let asked = 0;
  const ask = async (verb: string, fields: readonly (readonly [string, string])[] = []) => {
    const sequence = String(++asked);
    server.stdin!.write(encodeLaunchMessage([['seq', sequence], ['verb', verb], ...fields]));
    await eventually('the launcher answers', () => heard.some((message) => message.get('seq') === sequence));
  };
  const watchNew = async (): Promise<ChildProcess> => {
    const child = started('/bin/sleep', ['infinity']);
    const pid = child.pid!;
    await ask('watch', [
      ['pid', String(pid)],
      ['started', readStarted(pid)!],
    ]);
    return child;
  };
  const announced = () => heard.flatMap((message) => message.get('exited') ?? []);

  const first: ChildProcess[] = [];
  for (let index = 0; index < watched; index++) first.push(await watchNew());
  const holder = started(hold, [String(server.pid)]);
  await once(holder.stdout!, 'data');
  for (const child of first) await end(child);
  const ended = first.map(({ pid }) => String(pid)).sort();
  await eventually('every end is announced', () => ended.every((pid) => announced().includes(pid)));

  for (let index = 0; index < watched; index++) await watchNew();
  // Rounds enough for whatever is still in the set to be heard.
  for (let round = 0; round < 20; round++) await ask('nothing');
  expect(announced().sort()).toEqual(ended);
});
