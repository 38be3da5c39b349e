import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { CoppiceError } from '@coppice/protocol';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fileType } from '../src/doors/mcp/file-type.ts';
import { PendingCalls } from '../src/doors/mcp/pending-calls.ts';
import { allToolsets } from '../src/doors/mcp/registry.ts';
import { toFailure } from '../src/doors/mcp/tool-failure.ts';
import { parseStatus } from '../src/git/git-status.ts';
import { ConfinedDirectory } from '../src/notes/confined-directory.ts';
import { editFrontmatter, parseNote } from '../src/notes/frontmatter.ts';
import { redact } from '../src/redaction/redact.ts';

async function* bytes(content: string): AsyncIterable<Buffer> {
  yield Buffer.from(content);
}

test('no tool answers what a sandbox asks, or changes which names it may reach', () => {
  const tools = Object.values(allToolsets).flat();
  expect(tools.flatMap(({ actions }) => actions)).not.toContain('answerQuestion');
  const network = tools.find(({ name }) => name === 'network_policy')!;
  const fields = Object.keys((network.input as unknown as { shape: object }).shape);
  expect(fields.sort()).toEqual(['allow_inter_vm', 'allow_internet', 'allowed_ports', 'workspace_id']);
});

describe('a confined directory', () => {
  let base: string;
  let inside: string;
  let directory: ConfinedDirectory;

  beforeEach(async () => {
    base = await mkdtemp(join(tmpdir(), 'coppice-confined-'));
    inside = join(base, 'inside');
    directory = await ConfinedDirectory.open(inside, 'transfer directory');
    await writeFile(join(base, 'secret'), 'secret');
  });
  afterEach(() => rm(base, { recursive: true, force: true }));

  const read = async (path: string): Promise<string> => {
    const { file } = await directory.read(path);
    return text(file.createReadStream());
  };
  const unsafe = expect.objectContaining({ code: 'unsafe' });

  test('writes and reads below itself, by relative and by absolute paths', async () => {
    expect(await directory.write('a/b/c', bytes('hello'))).toEqual({ bytes: 5 });
    expect(await read(join(inside, 'a/b/c'))).toBe('hello');
    expect(await read('./a//b/./c')).toBe('hello');
    expect(await readdir(join(inside, 'a/b'))).toEqual(['c']);
  });

  test.each(['../secret', 'a/../../secret', '/etc/passwd', '/', '..'])(
    'refuses %s, which leads outside',
    async (path) => {
      await expect(directory.read(path)).rejects.toThrow(CoppiceError);
      await expect(directory.write(path, bytes('x'))).rejects.toThrow(CoppiceError);
    },
  );

  test('names that no file can have are refused as input', async () => {
    const long = 'x'.repeat(300);
    await directory.write('a', bytes('x'));
    for (const path of [long, `${long}/a`, `a/${long}`])
      for (const work of [
        () => directory.read(path),
        () => directory.write(path, bytes('x')),
        () => directory.remove(path),
        () => directory.exists(path),
        () => directory.move('a', path),
        () => directory.list(path),
      ])
        await expect(work()).rejects.toMatchObject({
          code: expect.stringMatching(/^(invalid_argument|unsafe)$/),
        });
    expect(await readdir(inside)).toEqual(['a']);
  });

  test('that was taken away or swapped for a link is refused, and nothing is written elsewhere', async () => {
    await rm(inside, { recursive: true });
    await expect(directory.read('a')).rejects.toMatchObject({ code: 'not_found' });
    await expect(directory.write('a', bytes('x'))).rejects.toMatchObject({ code: 'not_found' });
    await symlink(base, inside);
    await expect(directory.read('secret')).rejects.toEqual(unsafe);
    await expect(directory.write('secret', bytes('x'))).rejects.toEqual(unsafe);
    expect(await readFile(join(base, 'secret'), 'utf8')).toBe('secret');
  });

  test('a file without end leaves some of the disk free, and nothing of itself', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32m', 'tmpfs', inside]);
    try {
      let sent = 0;
      const endless = async function* () {
        for (; sent < 2 ** 30; sent += 65_536) yield Buffer.alloc(65_536);
      };
      await expect(directory.write('endless', endless())).rejects.toMatchObject({ code: 'no_space' });
      expect(sent).toBeGreaterThan(2 ** 24);
      expect(sent).toBeLessThan(2 ** 25);
      expect(await readdir(inside)).toEqual([]);
    } finally {
      execFileSync('umount', [inside]);
    }
  });

  test('takes paths that begin as it was configured, also where that leads through a link', async () => {
    await symlink(base, `${base}-link`);
    try {
      const linked = await ConfinedDirectory.open(`${base}-link/inside/`, 'transfer directory');
      await linked.write(`${base}-link/inside/a`, bytes('x'));
      expect(await read(join(inside, 'a'))).toBe('x');
      await expect(linked.read(`${base}-link/secret`)).rejects.toEqual(unsafe);
      await expect(linked.read(`${base}-link/inside/../secret`)).rejects.toEqual(unsafe);
    } finally {
      await rm(`${base}-link`);
    }
  });

  test('refuses a directory beside it whose name starts as its own does', async () => {
    await mkdir(`${inside}-not`);
    await writeFile(`${inside}-not/file`, 'x');
    await expect(directory.read(`${inside}-not/file`)).rejects.toEqual(unsafe);
  });

  test('refuses a symbolic link at the end, in the middle, and one that points back inside', async () => {
    await mkdir(join(inside, 'real'));
    await writeFile(join(inside, 'real/file'), 'x');
    await symlink('../secret', join(inside, 'end'));
    await symlink('..', join(inside, 'middle'));
    await symlink('real', join(inside, 'back'));
    for (const path of ['end', 'middle/secret', 'back/file', 'middle/inside/real/file']) {
      await expect(directory.read(path), path).rejects.toEqual(unsafe);
      await expect(directory.write(path, bytes('x')), path).rejects.toEqual(unsafe);
      await expect(directory.remove(path), path).rejects.toEqual(unsafe);
    }
    expect(await readFile(join(base, 'secret'), 'utf8')).toBe('secret');
  });

  test('never reaches outside while somebody swaps a directory for a link and back', async () => {
    await mkdir(join(inside, 'dir'));
    await writeFile(join(inside, 'dir/secret'), 'harmless');
    await symlink('..', join(inside, 'link'));
    let done = false;
    const swapping = (async () => {
      while (!done) {
        await rename(join(inside, 'dir'), join(inside, 'away'));
        await rename(join(inside, 'link'), join(inside, 'dir'));
        await rename(join(inside, 'dir'), join(inside, 'link'));
        await rename(join(inside, 'away'), join(inside, 'dir'));
      }
    })();
    for (let n = 0; n < 300; n += 1) {
      const found = await read('dir/secret').catch((error: CoppiceError) => error.code);
      expect(['harmless', 'unsafe', 'not_found']).toContain(found);
    }
    done = true;
    await swapping;
  });

  test('leaves nothing behind when what is written fails midway', async () => {
    const failing = async function* (): AsyncIterable<Buffer> {
      yield Buffer.from('half');
      throw new Error('the source broke');
    };
    await writeFile(join(inside, 'kept'), 'before');
    await expect(directory.write('kept', failing())).rejects.toThrow('the source broke');
    expect(await readFile(join(inside, 'kept'), 'utf8')).toBe('before');
    expect(await readdir(inside)).toEqual(['kept']);
  });

  test('reads regular files only', async () => {
    await mkdir(join(inside, 'dir'));
    await expect(directory.read('dir')).rejects.toEqual(
      expect.objectContaining({ code: 'invalid_argument' }),
    );
    await expect(directory.read('none')).rejects.toEqual(expect.objectContaining({ code: 'not_found' }));
  });
});

describe('failures', () => {
  const failureText = (error: unknown): string => {
    const [block] = toFailure(error).result.content;
    return block?.type === 'text' ? block.text : '';
  };

  test('say what came before them, and the next tool instead of a command for a shell', () => {
    const error = new CoppiceError('wrong_state', 'sandbox a is stopped', {
      hint: 'Start it with `coppice start a`.',
      details: { stdout: 'early\n' },
    });
    const said = failureText(error);
    expect(said).toContain('Next: Call workspace_info to see its state, then workspace_start.');
    expect(said).toContain('early');
    expect(said).not.toContain('coppice start');
  });

  test('say nothing of the inside of what was not foreseen', () => {
    expect(failureText(new TypeError('x is not a function'))).not.toContain('x is not a function');
  });
});

test.each([
  ['fatal: unable to access https://user:pass@host/r.git', 'fatal: unable to access https://***@host/r.git'],
  ['https://ghp_0123456789abcdefABCDEF@github.com/a', 'https://***@github.com/a'],
  ['token ghp_0123456789abcdefABCDEF!', 'token ghp_***!'],
  ['Authorization: Bearer abcdefghijkl', 'Authorization: Bearer ***'],
  ['ssh://git@host/r.git and git@host:r.git', 'ssh://git@host/r.git and git@host:r.git'],
])('credentials are taken out of %s', (given, wanted) => {
  expect(redact(given)).toBe(wanted);
});

test('the status of a repository is read with renames, conflicts and odd names', () => {
  const records = [
    '# branch.oid 0',
    '# branch.head main',
    '# branch.ab +2 -1',
    '1 M. N... 100644 100644 100644 a b staged file',
    '1 .M N... 100644 100644 100644 a b changed',
    '2 R. N... 100644 100644 100644 a b R100 new name',
    'old name',
    'u UU N... 100644 100644 100644 100644 a b c both',
    '? un tracked',
  ];
  expect(parseStatus(records.join('\0'))).toEqual({
    branch: 'main',
    ahead: 2,
    behind: 1,
    staged: ['staged file', 'new name'],
    modified: ['changed'],
    untracked: ['un tracked'],
    conflicted: ['both'],
    dirty: true,
  });
});

test('a cancellation reaches the call of the same client, and no other', () => {
  const calls = new PendingCalls();
  const own = new AbortController();
  const other = new AbortController();
  calls.enter('a', { id: 1, method: 'tools/call' }, own);
  calls.enter('b', { id: 1, method: 'tools/call' }, other);
  calls.enter('a', { method: 'notifications/cancelled', params: { requestId: 1 } }, new AbortController());
  expect([own.signal.aborted, other.signal.aborted]).toEqual([true, false]);
});

test('text and binary are told apart, also where the cut splits a character', () => {
  expect(fileType('a.md', Buffer.from('é'), false)).toEqual({ isText: true, mimeType: 'text/markdown' });
  expect(fileType('a', Buffer.from('é').subarray(0, 1), true)).toMatchObject({ isText: true });
  expect(fileType('a', Buffer.from('é').subarray(0, 1), false)).toMatchObject({ isText: false });
  expect(fileType('a.txt', Buffer.from([0x1f, 0x8b, 0]), false)).toEqual({
    isText: false,
    mimeType: 'application/gzip',
  });
});

test('frontmatter comes back as it was written', () => {
  const note = {
    frontmatter: { title: 'a: b', count: 3, done: true, none: null, tags: ['x', 'y, z'], word: 'true' },
    body: '# Title\n---\ntext\n',
  };
  expect(parseNote(editFrontmatter(note.body, () => note.frontmatter))).toEqual(note);
  expect(parseNote('no frontmatter')).toEqual({ frontmatter: {}, body: 'no frontmatter' });
  expect(parseNote('---\ntags:\n  - a\n  - b\n---\nx').frontmatter).toEqual({ tags: ['a', 'b'] });
});

test('a change of frontmatter keeps nested values, comments and the order of what it does not change', () => {
  const before =
    '---\n# who asks\nauthor: {name: ada, since: 2024}\nold: 1\ntags: [a] # of the team\n---\nbody\n';
  const after = editFrontmatter(before, ({ old: _, ...rest }) => ({ ...rest, state: 'done' }));
  expect(after).toBe(
    '---\n# who asks\nauthor: {name: ada, since: 2024}\ntags: [a] # of the team\nstate: done\n---\nbody\n',
  );
  expect(editFrontmatter('---\nold: 1\n---\nbody\n', () => ({}))).toBe('body\n');
  expect(() => parseNote('---\na: &x 1\nb: *x\n---\n')).toThrow(/cannot be read/);
  expect(() => parseNote('---\n- a\n---\n')).toThrow(/keys with values/);
});
