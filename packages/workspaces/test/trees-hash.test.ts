import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PackReader } from '../src/trees/pack-reader.ts';
import { pathText } from '../src/trees/path-text.ts';
import { TreeProgram } from '../src/trees/tree-program.ts';
import { parseTreeRoot } from '../src/trees/tree-root.ts';

let home: string;
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-trees-'));
  for (const folder of ['control/packs', 'control/blobs', 'control/tmp', 'payload']) {
    await mkdir(join(home, folder), { recursive: true });
  }
});
afterAll(() => rm(home, { recursive: true, force: true }));

const newPack = (): string => `1${Math.random().toString(16).slice(2).padEnd(15, '0').slice(0, 15)}`;

const scan = async (directory: string): Promise<Map<string, { hash: string; size: number }>> => {
  const program = new TreeProgram();
  const control = join(home, 'control');
  const pack = newPack();
  try {
    const { root } = await program.request<{ root: string }>('scan', {
      store: control,
      dir: directory,
      pack,
      keep: true,
    });
    using reader = new PackReader(control);
    const [top] = reader.readNode(parseTreeRoot(root));
    if (!top) throw new Error('no top');
    return new Map(
      reader.readNode(top.location).map(({ name, hash, size }) => [pathText(name), { hash, size }]),
    );
  } finally {
    program.close();
  }
};

describe('the hash of a file', () => {
  test('is its BLAKE3, at every size where the tree of the hash changes its shape', async () => {
    const directory = join(home, 'payload');
    const sizes = [
      0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3072, 4096, 7169, 8192, 8193, 65_535, 65_536, 65_537,
      131_072, 131_073, 196_608, 262_144, 262_145, 1_000_000, 4_194_304, 4_194_305,
    ];
    const expected = new Map<string, { hash: string; size: number }>();
    for (const size of sizes) {
      const bytes = Buffer.alloc(size);
      for (let at = 0; at < size; at += 1) bytes[at] = at % 251;
      await writeFile(join(directory, `${size}`), bytes);
      expected.set(`${size}`, { hash: new Blake3Hasher().update(bytes).digest('hex'), size });
    }
    const found = await scan(directory);
    for (const [name, content] of expected) expect([name, found.get(name)]).toEqual([name, content]);
  });

  test('is computed once for each change, whoever asks for the tree how often', async () => {
    const directory = join(home, 'once');
    const index = join(home, 'once.index');
    await mkdir(directory);
    for (let file = 0; file < 50; file += 1) await writeFile(join(directory, `${file}`), `${file}`);
    await writeFile(join(directory, 'large'), Buffer.alloc(300_000, 1));
    const program = new TreeProgram();
    const hashed = async (): Promise<number> => {
      const answer = await program.request<{ hashed: number; indexChanged: boolean }>('scan', {
        store: join(home, 'control'),
        dir: directory,
        index,
        newIndex: `${index}.new`,
        locations: true,
        pack: newPack(),
        keep: true,
      });
      if (answer.indexChanged) await rename(`${index}.new`, index);
      return answer.hashed;
    };
    try {
      // What was written just now could change once more within the same tick, and is read again until it is older.
      while ((await hashed()) > 0);
      expect(await hashed()).toBe(0);
      await writeFile(join(directory, '7'), 'other');
      expect(await hashed()).toBe(1);
    } finally {
      program.close();
    }
  });
});
