import { lstat, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Coppice } from '@coppice/sdk';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CliHome } from '../e2e/cli-home.ts';

describe('what comes out of a hostile sandbox', () => {
  let cli: CliHome;
  let into: string;
  beforeAll(async () => {
    cli = await CliHome.start();
    into = join(cli.directory, 'into');
    await mkdir(into);
    const directory = join(cli.directory, 'given');
    await mkdir(directory);
    await writeFile(join(directory, 'file'), 'as it was\n');
    await cli.ok('create', 'hostile', '--copy-in', `${directory}:/root/given`);
  });
  afterAll(() => cli?.remove(), 300_000);

  const names = async (): Promise<string[]> => (await readdir(into)).sort();

  test('is bounded where a file says that it is as large as no disk here: cp leaves nothing of it', async () => {
    await cli.ok(
      'exec',
      'hostile',
      'mkdir -p /root/holes && dd of=/root/holes/file bs=1 count=0 seek=1T status=none',
    );
    const file = await cli.run(['cp', 'hostile:/root/holes/file', into, '--max-size', '8m']);
    expect([file.code, file.stderr]).toEqual([10, expect.stringContaining('--max-size')]);
    expect(await names()).toEqual([]);
    const directory = await cli.run(['cp', 'hostile:/root/holes', into, '--max-size', '8m']);
    expect([directory.code, directory.stderr]).toEqual([10, expect.stringContaining('--max-size')]);
    expect((await lstat(join(into, 'holes/file'))).size).toBeLessThanOrEqual(8 * 1024 ** 2);
    const piped = await cli.run(['cp', 'hostile:/root/holes/file', '-', '--max-size', '1m']);
    expect([piped.code, piped.bytes.length]).toEqual([10, expect.any(Number)]);
    expect(piped.bytes.length).toBeLessThanOrEqual(1024 ** 2);
  });

  test('is bounded where it is a link to a device without an end', async () => {
    await cli.ok('exec', 'hostile', 'ln -sf /dev/zero /root/endless');
    const { code } = await cli.run(['cp', 'hostile:/root/endless', into, '--max-size', '4m']);
    expect(code).not.toBe(0);
    expect(await names()).not.toContain('endless');
  });

  test('is bounded in the number of its files', async () => {
    await cli.ok(
      'exec',
      'hostile',
      'mkdir -p /root/many; cd /root/many; for i in 1 2 3 4 5 6 7 8; do : > $i; done',
    );
    const refused = await cli.run(['cp', 'hostile:/root/many', into, '--max-files', '4']);
    expect([refused.code, refused.stderr]).toEqual([10, expect.stringContaining('more than 4 files')]);
    await cli.ok('cp', 'hostile:/root/many', into, '--max-files', '20');
  });

  test('is bounded by pull too, which changes nothing here then', async () => {
    await cli.ok(
      'exec',
      'hostile',
      'cd /root/given && dd of=hole bs=1 count=0 seek=1T status=none && echo changed > file',
    );
    const target = join(cli.directory, 'given');
    const refused = await cli.run(['pull', 'hostile', '--into', target, '--max-size', '8m']);
    expect([refused.code, refused.stderr]).toEqual([10, expect.stringContaining('--max-size')]);
    expect(await readFile(join(target, 'file'), 'utf8')).toBe('as it was\n');
    expect(await readdir(target)).toEqual(['file']);
    await cli.ok('exec', 'hostile', 'rm /root/given/hole');
    await cli.ok('pull', 'hostile', '--into', target);
    expect(await readFile(join(target, 'file'), 'utf8')).toBe('changed\n');
  });

  test('is no device, pipe or socket here, and an error shows no control characters', async () => {
    await cli.ok(
      'exec',
      'hostile',
      'mkdir -p /root/odd; mkfifo "/root/odd/$(printf \'a\\033]0;owned\\007\')"',
    );
    const refused = await cli.run(['cp', 'hostile:/root/odd', into]);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f]/);
    for (const name of await readdir(join(into, 'odd')).catch(() => []))
      expect((await lstat(join(into, 'odd', name))).isFIFO()).toBe(false);
  });

  test('is bounded only where something comes out', async () => {
    const refused = await cli.run(['cp', into, 'hostile:/root/in', '--max-size', '1g']);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('--max-size')]);
  });
});

describe('a hostile daemon', () => {
  let server: Server;
  let url: string;
  const answer = 'x'.repeat(65_536);
  beforeAll(async () => {
    // It sends without an end, whatever it is asked for.
    server = createServer((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      const send = () => {
        while (response.write(answer));
        response.once('drain', send);
      };
      send();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  test('fills neither the memory nor the disk of its client', async () => {
    using client = new Coppice({ url, token: 'some' }, {});
    const { files } = client.sandboxes.at('any');
    await expect(files.read('/endless', { maxBytes: 1024 ** 2 })).rejects.toMatchObject({
      code: 'too_large',
    });
    await expect(files.readText('/endless', { maxBytes: 1024 ** 2 })).rejects.toMatchObject({
      code: 'too_large',
    });
  });
});
