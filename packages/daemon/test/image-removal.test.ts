import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { CoppiceError, IdSource } from '@coppice/protocol';
import { ImageStore } from '@coppice/runtime';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDatabase } from '../src/db/open-database.ts';
import { State } from '../src/db/state.ts';
import { ImageService } from '../src/images/image-service.ts';
import { Journal } from '../src/journal/journal.ts';

describe('an image that is being removed', () => {
  let directory: string;
  let state: State;
  let images: ImageService;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'coppice-images-'));
    mkdirSync(join(directory, 'source/bin'), { recursive: true });
    writeFileSync(join(directory, 'source/bin/true'), '');
    state = new State(openDatabase(join(directory, 'db'), join(directory, 'backup')));
    const ids = new IdSource(Date.now);
    const store = await ImageStore.open({
      directory: join(directory, 'images'),
      newId: () => ids.next('image'),
      now: () => new Date(),
    });
    images = new ImageService(store, state, new Journal(state, { now: Date.now }));
    await images.make({ name: 'once', source: join(directory, 'source'), refresh: false });
  });
  afterEach(() => {
    state.close();
    rmSync(directory, { recursive: true });
  });

  const codeOf = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => 'done',
      (error: unknown) => (error instanceof CoppiceError ? error.code : Promise.reject(error)),
    );

  test('is no longer given out, whenever it is asked for, and is forgotten', async () => {
    const removal = images.remove('once');
    const uses: Promise<string>[] = [];
    let gone = false;
    void removal.then(() => {
      gone = true;
    });
    while (images.peek('once') !== undefined) await turn();
    while (!gone) {
      uses.push(codeOf(images.use('once', {}, async () => {})));
      await turn();
    }
    await removal;
    for (const code of await Promise.all(uses)) expect(['conflict', 'not_found']).toContain(code);
    expect(images.peek('once')).toBeUndefined();
    expect(
      (await images.make({ name: 'once', source: join(directory, 'source'), refresh: false })).name,
    ).toBe('once');
    expect(await codeOf(images.use('once', {}, async () => {}))).toBe('done');
  });

  test('is kept when something stands on it, and stays usable', async () => {
    await images.use('once', {}, async () => {
      expect(await codeOf(images.remove('once'))).toBe('in_use');
      const { digest } = await images.get('once');
      // What an import that failed would do: it is somebody's by now.
      expect(await codeOf(images.dropUnused(digest))).toBe('done');
    });
    expect(await codeOf(images.use('once', {}, async () => {}))).toBe('done');
  });
});
