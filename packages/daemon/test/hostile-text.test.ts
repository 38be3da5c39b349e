import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';

/** Enough for any machine, and a small part of what work takes that grows with the square of a text. */
const deadlineMs = 50_000;
const source = new URL('../src/', import.meta.url).href;

/** Runs a script with what it imports in a thread, which can be ended when it does not end by itself. */
const inThread = async (script: string): Promise<unknown> => {
  const thread = new Worker(
    `const { parentPort } = require('node:worker_threads');
     const from = (name) => import(${JSON.stringify(source)} + name);
     (async () => { ${script} })().then((answer) => parentPort.postMessage(answer));`,
    { eval: true },
  );
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  thread.once('message', resolve);
  thread.once('error', reject);
  const timer = setTimeout(() => reject(new Error('it takes for ever')), deadlineMs);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    await thread.terminate();
  }
};

test('credentials are taken out of any text in time that grows with the text alone', {
  timeout: 60_000,
}, async () => {
  const answer = inThread(`
    const { redact } = await from('redaction/redact.ts');
    const texts = ['a-', 'a.', 'http://', 'a://b:', 'authorization: ', 'bearer ', 'ghp_', "https://a'"].map((part) => part.repeat(2_000_000 / part.length));
    return texts.map((text) => redact(text).length > 0).every(Boolean);
  `);
  expect(await answer).toBe(true);
});

test('values of the environment are taken out of any text, whatever they have in common with it', {
  timeout: 60_000,
}, async () => {
  const answer = inThread(`
    const { Secrets } = await from('redaction/secrets.ts');
    const secrets = new Secrets();
    for (let index = 0; index < 900; index += 1) secrets.add('a'.repeat(12 + (index % 200)) + 'b' + index);
    const clean = secrets.redact('a'.repeat(2_000_000) + 'b7 and on');
    return clean.endsWith('***hidden*** and on');
  `);
  expect(await answer).toBe(true);
});

test('a text is replaced in any other in time that grows with both', { timeout: 60_000 }, async () => {
  const answer = inThread(`
    const { TextSearch } = await from('text/replace-text.ts');
    const a = Buffer.alloc(16 * 1024 ** 2, 'a');
    const long = Buffer.alloc(6 * 1024 ** 2, 'a');
    long[0] = 98;
    const none = await new TextSearch(a, long).count();
    const every = new TextSearch(a, Buffer.from('a'));
    const count = await every.count();
    return [none, count, (await every.replace(Buffer.from(''), count)).length];
  `);
  expect(await answer).toEqual([0, 16 * 1024 ** 2, 0]);
});

test('frontmatter of a note is read or refused in time, whatever it holds', { timeout: 60_000 }, async () => {
  const answer = inThread(`
    const { parseNote } = await from('notes/frontmatter.ts');
    const heads = ['- a\\n', '[', '{a: ', '  ', '? ', '&a ', '- - ', '"\\\\', "'", '!t ', '#', 'a: |\\n', '%', 'a: &a [*a]\\n', '- ? '];
    let ended = 0;
    for (const head of heads)
      for (const [before, times] of [['tags:\\n', 100_000], ['', 16_000], ['x: ', 16_000]])
        try {
          parseNote('---\\n' + before + head.repeat(times / head.length) + '\\n---\\nbody');
          ended += 1;
        } catch (error) {
          if (error.code === undefined) throw error;
          ended += 1;
        }
    return ended;
  `);
  expect(await answer).toBe(45);
});
