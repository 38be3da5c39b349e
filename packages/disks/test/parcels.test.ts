import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ParcelKind, Parcels } from '@coppice/disks';
import { fillWithOddities, guestProgram, treeListing } from '@coppice/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const parcels = new Parcels(guestProgram('coppice-parcel'));
const mib = 1024 ** 2;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-parcels-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const make = (name: string): string => {
  const path = join(directory, name);
  mkdirSync(path);
  return path;
};

async function* streamOf(...chunks: Buffer[]) {
  yield* chunks;
}

const collect = async (stream: AsyncIterable<Buffer>): Promise<Buffer> => {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
};

test('everything that a disk can hold comes out as it went in, and the same tree gives the same bytes', async () => {
  const source = make('source');
  await fillWithOddities(source);
  // What only the host's own programs can see does not travel.
  execFileSync('setfattr', ['-x', 'trusted.note', join(source, 'attributed')]);
  const target = make('target');
  const count = await parcels.unpack(parcels.pack('disk', source), target, { kind: 'disk', maxBytes: mib });
  expect(await treeListing(target)).toBe(await treeListing(source));
  const packed = await collect(parcels.pack('disk', source));
  expect(packed.equals(await collect(parcels.pack('disk', target)))).toBe(true);
  expect(await parcels.check(streamOf(packed), { kind: 'disk', maxBytes: mib })).toEqual(count);
  expect(count.bytes).toBeLessThan(packed.length);
});

test('a tree deeper than any path, with two names of one file at its end, is whole afterwards', async () => {
  const source = make('source');
  const script =
    'cd "$1"; for i in $(seq 90); do d=$(printf %050d 7); mkdir $d; cd -P ./$d; done; echo x > f; ln f g';
  execFileSync('bash', ['-c', script, 'bash', source], { stdio: ['ignore', 'ignore', 'inherit'] });
  const target = make('target');
  await parcels.unpack(parcels.pack('disk', source), target, { kind: 'disk', maxBytes: mib });
  const inodes = execFileSync('find', [target, '-type', 'f', '-printf', '%n %i\n'], {
    encoding: 'utf8',
  }).trim();
  expect(new Set(inodes.split('\n')).size).toBe(1);
  expect(inodes).toMatch(/^2 /);
});

describe('a stream of a stranger', () => {
  const u8 = (value: number) => Buffer.from([value]);
  const number = (bytes: 2 | 4 | 8, value: number): Buffer => {
    const buffer = Buffer.alloc(bytes);
    if (bytes === 8) buffer.writeBigUInt64LE(BigInt(value));
    else buffer.writeUIntLE(value, 0, bytes);
    return buffer;
  };
  const name = (text: string | Buffer): Buffer =>
    Buffer.concat([u8(Buffer.from(text).length), Buffer.from(text)]);
  const attributes = (xattrs: Record<string, string> = {}, { mode = 0o644, flags = 0 } = {}): Buffer =>
    Buffer.concat([
      u8(flags),
      ...[mode, 0, 0].map((value) => number(4, value)),
      number(8, 0),
      number(4, 0),
      number(2, Object.keys(xattrs).length),
      ...Object.entries(xattrs).flatMap(([key, value]) => [
        u8(key.length),
        number(4, value.length),
        Buffer.from(key + value),
      ]),
    ]);
  const record = (kind: string, ...rest: Buffer[]): Buffer => Buffer.concat([Buffer.from(kind), ...rest]);
  const tree = (...records: Buffer[]): Buffer =>
    Buffer.concat([Buffer.from('CPTREE1\n'), record('R', attributes()), ...records, record('E')]);
  const file = (text: string, content = Buffer.from('x'), size = content.length): Buffer => {
    const extent = content.length === 0 ? [] : [number(8, 0), number(8, content.length), content];
    const tail = [...extent, number(8, size), number(8, 0)];
    return record('F', name(text), attributes(), number(8, size), ...tail);
  };
  const up = record('U');

  const refusal = async (stream: Buffer, kind: ParcelKind = 'disk', maxBytes = mib): Promise<string> => {
    const target = make('target');
    const codes = await Promise.all(
      [
        parcels.check(streamOf(stream), { kind, maxBytes }),
        parcels.unpack(streamOf(stream), target, { kind, maxBytes }),
      ].map((work) =>
        work.then(
          () => 'taken',
          (error) => error.code as string,
        ),
      ),
    );
    expect(codes[0]).toBe(codes[1]);
    return codes[0]!;
  };

  test('is taken when it is well formed', async () => {
    expect(await refusal(tree(record('D', name('d'), attributes()), file('f'), up, file('g')))).toBe('taken');
    expect(readdirSync(join(directory, 'target/d'))).toEqual(['f']);
  });

  test.each([
    ['..', file('..')],
    ['a dot', file('.')],
    ['nothing', file('')],
    ['a path', file('a/b')],
    ['an absolute path', file('/etc/passwd')],
    [
      'a NUL byte',
      record('F', name(Buffer.from('a\0b')), attributes(), number(8, 0), number(8, 0), number(8, 0)),
    ],
  ])('whose entry is named by %s is unsafe', async (_, entry) => {
    expect(await refusal(tree(entry))).toBe('unsafe');
  });

  test.each([
    ['the same name twice', tree(file('a'), file('a'))],
    ['names out of order', tree(file('b'), file('a'))],
    [
      'a symlink and then a directory of that name',
      tree(
        record('L', name('a'), attributes(), number(2, 4), Buffer.from('/etc')),
        record('D', name('a'), attributes()),
        up,
      ),
    ],
    ['one directory left too many', tree(up)],
    ['one directory left too few', tree(record('D', name('d'), attributes()))],
    ['a link to what never came', tree(record('H', name('h'), number(4, 0)))],
    ['content past the end of its file', tree(file('f', Buffer.from('long'), 2))],
    ['a negative size', tree(record('F', name('f'), attributes(), Buffer.alloc(8, 0xff)))],
    ['an unknown record', tree(record('B', name('sda'), attributes()))],
    ['an impossible mode', tree(record('P', name('p'), attributes({}, { mode: 0o60644 })))],
    ['unknown flags', tree(record('P', name('p'), attributes({}, { flags: 6 })))],
    ['something after its end', Buffer.concat([tree(), Buffer.from('x')])],
    ['another beginning', Buffer.from('ustar\0\0\0\0\0')],
    ['no bytes at all', Buffer.alloc(0)],
  ])('with %s is refused', async (_, stream) => {
    expect(await refusal(stream)).toBe('invalid_argument');
  });

  test('that is cut off anywhere is refused', async () => {
    const whole = tree(record('D', name('d'), attributes({ 'user.a': 'b' })), file('f'), up);
    for (let length = 0; length < whole.length; length += 3) {
      const cut = parcels.check(streamOf(whole.subarray(0, length)), { kind: 'disk', maxBytes: mib });
      await expect(cut).rejects.toMatchObject({ code: 'invalid_argument' });
    }
  });

  test('may not bring attributes that mean something to the host, nor marks where they are no content', async () => {
    for (const key of [
      'trusted.overlay.redirect',
      'user.overlay.redirect',
      'user.overlay.metacopy',
      'security.selinux',
    ])
      await expect(
        parcels.check(streamOf(tree(record('P', name('p'), attributes({ [key]: 'x' })))), {
          kind: 'disk',
          maxBytes: mib,
        }),
      ).rejects.toMatchObject({ code: 'unsafe', message: expect.stringContaining(key) });
    expect(
      await refusal(tree(record('D', name('d'), attributes({ 'user.overlay.opaque': 'y' })), up), 'image'),
    ).toBe('unsafe');
  });

  test('of an image holds no device, and of memory nothing but plain files', async () => {
    const whiteout = tree(record('W', name('w'), attributes()));
    expect(await refusal(whiteout, 'image')).toBe('unsafe');
    for (const entry of [
      record('L', name('pages.img'), attributes(), number(2, 11), Buffer.from('/etc/shadow')),
      record('P', name('p'), attributes()),
      Buffer.concat([record('D', name('d'), attributes()), up]),
    ])
      await expect(
        parcels.check(streamOf(tree(entry)), { kind: 'memory', maxBytes: mib }),
      ).rejects.toMatchObject({ code: 'unsafe' });
  });

  test('that holds more than there is room for stops at the limit; holes cost nothing', async () => {
    expect(await refusal(tree(file('f', Buffer.alloc(2000))), 'disk', 1999)).toBe('too_large');
    const holes = tree(file('f', Buffer.from('x'), 2 ** 40));
    expect(await parcels.check(streamOf(holes), { kind: 'disk', maxBytes: 1000 })).toEqual({
      entries: 1,
      bytes: 1,
    });
  });

  test('of many entries with nothing in them stops at the limit too', async () => {
    const many = Array.from({ length: 5000 }, (_, i) => file(String(i).padStart(5, '0'), Buffer.alloc(0)));
    expect(await refusal(tree(...many))).toBe('too_large');
    const { entries } = await parcels.check(streamOf(tree(...many)), { kind: 'disk', maxBytes: 4 * mib });
    expect(entries).toBe(5000);
  });

  test('that is as deep as the walk may go comes out of a disk as it went in', async () => {
    const depth = 3000;
    const down = Array.from({ length: depth }, () => record('D', name('d'), attributes({}, { mode: 0o755 })));
    const whole = tree(...down, file('leaf'), ...down.map(() => up));
    const target = make('deep');
    try {
      await parcels.unpack(streamOf(whole), target, { kind: 'disk', maxBytes: 16 * mib });
      expect((await collect(parcels.pack('disk', target))).equals(whole)).toBe(true);
    } finally {
      // Node's own way is too deep a recursion.
      execFileSync('rm', ['-rf', target]);
    }
  });

  test('with more attributes than memory is refused before it fills it', async () => {
    const names = Array.from({ length: 1024 }, (_, i) => [`user.${String(i).padStart(4, '0')}`, ''] as const);
    const loaded = record('D', name('d'), attributes(Object.fromEntries(names), { mode: 0o755 }));
    const down = Array.from({ length: 2000 }, () => loaded);
    const refused = parcels.check(streamOf(tree(...down, ...down.map(() => up))), {
      kind: 'disk',
      maxBytes: 1024 * mib,
    });
    await expect(refused).rejects.toMatchObject({ code: 'too_large' });
  });
});
