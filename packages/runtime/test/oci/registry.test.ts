import { readFileSync, statSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  layerTar,
  registryLogin,
  registryRefusal,
  skipFor,
  skopeoCopy,
  TestRegistry,
  writeOciLayout,
} from '@coppice/testkit';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DockerConfigFile } from '../../src/images/oci/docker-config-file.ts';
import { LoginFile } from '../../src/images/oci/login-file.ts';
import { checkAddress } from '../../src/images/oci/registry-address.ts';
import { Front, type Intercept } from './front.ts';
import { logins, Puller } from './puller.ts';

const refusal = registryRefusal();
const password = { kind: 'password', ...registryLogin } as const;
const asArguments = `${registryLogin.username}:${registryLogin.password}`;

let home: string;
let puller: Puller;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'coppice-pull-'));
  puller = await Puller.open(home);
});
afterEach(async () => {
  await rm(home, { recursive: true, force: true });
});

const failure = async (work: Promise<unknown>): Promise<{ code: string; message: string; hint: string }> =>
  work.then(
    () => {
      throw new Error('it should have been refused');
    },
    (error) => error,
  );

const baseLayer = (): Promise<Buffer> =>
  layerTar({ name: 'etc/', type: 'directory' }, { name: 'etc/motto', text: 'as it came' });
const largeLayer = (): Promise<Buffer> =>
  layerTar({ name: 'large', text: Buffer.alloc(4 << 20, 'abcdefgh') });

async function put(registry: string, name: string, options: string[] = []): Promise<string> {
  const layout = join(home, `layout-${name.replace(/\W/g, '-')}`);
  const image = { layers: [await baseLayer(), await largeLayer()], packing: 'plain' } as const;
  const digest = await writeOciLayout(layout, 'x', image);
  await skopeoCopy(`oci:${layout}:x`, `docker://${registry}/${name}`, ...options);
  return digest;
}

describe('pulling from a real registry', skipFor(refusal), () => {
  let open: TestRegistry;
  beforeAll(async () => {
    open = await TestRegistry.start();
  });
  afterAll(async () => {
    await open[Symbol.asyncDispose]();
  });

  const motto = async (diffId: string): Promise<string> =>
    readFile(join(puller.layers.path(diffId), 'etc/motto'), 'utf8');

  it('brings an image whole, says how far each layer is, and brings no layer twice', async () => {
    const digest = await put(open.host, 'app:1');
    const states = new Set<string>();
    const pulled = await puller.pull(`${open.host}/app:1`, {
      onLayer: ({ state, digest: layer }) => states.add(`${layer} ${state}`),
    });
    expect(pulled.digest).toBe(digest);
    expect(await motto(pulled.config.rootfs.diff_ids[0]!)).toBe('as it came');
    for (const { digest: layer } of pulled.manifest.layers)
      for (const state of ['waiting', 'downloading', 'unpacking', 'done'])
        expect(states).toContain(`${layer} ${state}`);
    using front = await Front.start(open.host);
    await puller.pull(`${front.host}/app:1`);
    expect(
      front.seen.filter(({ path }) => pulled.manifest.layers.some((layer) => path.includes(layer.digest))),
    ).toEqual([]);
  });

  it('pins an image by its digest, whatever its tag says', async () => {
    const digest = await put(open.host, 'pinned:1');
    const pulled = await puller.pull(`${open.host}/pinned:nothing@${digest}`);
    expect(pulled.digest).toBe(digest);
    const wrong = digest.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    expect(await failure(puller.pull(`${open.host}/pinned@${wrong}`))).toMatchObject({ code: 'not_found' });
  });

  it('says that an image or a tag is not there', async () => {
    await put(open.host, 'there:1');
    for (const name of ['there:2', 'nowhere:1']) {
      const error = await failure(puller.pull(`${open.host}/${name}`));
      expect(error).toMatchObject({ code: 'not_found' });
      expect(error.message).toContain(name);
    }
  });

  it('takes the image of this machine from a list of platforms, and names those of a list that has none', async () => {
    const layout = join(home, 'platforms');
    const other = await layerTar({ name: 'which', text: 'other' });
    const own = await layerTar({ name: 'which', text: 'own' });
    const digest = await writeOciLayout(
      layout,
      'x',
      { layers: [other], architecture: 's390x' },
      { layers: [own] },
    );
    await skopeoCopy(`oci:${layout}:x`, `docker://${open.host}/many:1`);
    const pulled = await puller.pull(`${open.host}/many:1`);
    expect(pulled.digest).toBe(digest);
    expect(await readFile(join(puller.layers.path(pulled.config.rootfs.diff_ids[0]!), 'which'), 'utf8')).toBe(
      'own',
    );
    const foreign = join(home, 'foreign');
    await writeOciLayout(
      foreign,
      'x',
      { layers: [other], architecture: 's390x' },
      { layers: [other], architecture: 'riscv64' },
    );
    await skopeoCopy(`oci:${foreign}:x`, `docker://${open.host}/foreign:1`);
    const error = await failure(puller.pull(`${open.host}/foreign:1`));
    expect(error).toMatchObject({ code: 'unsupported' });
    expect(error.hint).toContain('linux/s390x, linux/riscv64');
  });

  it.each(['gzip', 'zstd', 'plain'] as const)('unpacks layers that are packed as %s', async (packing) => {
    const layout = join(home, packing);
    await writeOciLayout(layout, 'x', { layers: [await baseLayer()], packing });
    await skopeoCopy(`oci:${layout}:x`, `docker://${open.host}/packed:${packing}`);
    const pulled = await puller.pull(`${open.host}/packed:${packing}`);
    expect(await motto(pulled.config.rootfs.diff_ids[0]!)).toBe('as it came');
  });

  it('goes on where a download was cut, as often as it is', async () => {
    await put(open.host, 'cut:1');
    let cuts = 2;
    const cut: Intercept = (call, answer) => {
      const digest = /\/blobs\/sha256:([0-9a-f]+)/.exec(call.url ?? '')?.[1];
      if (digest === undefined || cuts === 0) return false;
      const bytes = readFileSync(join(home, 'layout-cut-1', 'blobs/sha256', digest));
      if (bytes.length < 1 << 20) return false;
      cuts -= 1;
      const from = Number(/bytes=(\d+)-/.exec(call.headers.range ?? '')?.[1] ?? 0);
      const range = `bytes ${from}-${bytes.length - 1}/${bytes.length}`;
      answer.writeHead(from > 0 ? 206 : 200, {
        'content-length': bytes.length - from,
        'content-range': range,
      });
      answer.write(bytes.subarray(from, from + (1 << 20)), () => answer.destroy());
      return true;
    };
    using front = await Front.start(open.host, cut);
    const pulled = await puller.pull(`${front.host}/cut:1`);
    expect(pulled.manifest.layers.length).toBe(2);
    const starts = front.seen.flatMap(({ headers }) =>
      headers.range === undefined ? [] : [Number(headers.range.slice(6, -1))],
    );
    expect(starts).toHaveLength(2);
    expect(starts[0]).toBeGreaterThan(0);
    expect(starts[1]).toBeGreaterThan(starts[0]!);
  });

  it('keeps what a cancelled download had, and asks only for the rest the next time', async () => {
    await put(open.host, 'later:1');
    const controller = new AbortController();
    using front = await Front.start(open.host);
    const pulling = puller.pull(`${front.host}/later:1`, {
      signal: controller.signal,
      onLayer: ({ state, doneBytes }) => {
        if (state === 'downloading' && doneBytes > 500_000) controller.abort();
      },
    });
    expect(await failure(pulling)).toBeDefined();
    expect((await puller.left()).filter((name) => name.startsWith('.partial-'))).toHaveLength(1);
    const again = await Puller.open(home);
    await again.pull(`${front.host}/later:1`);
    expect(front.seen.at(-1)?.headers.range).toMatch(/^bytes=[1-9]\d+-$/);
    expect((await again.left()).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('refuses bytes that are not those of the digest, and keeps none of them', async () => {
    await put(open.host, 'forged:1');
    const forge: Intercept = (call, answer) => {
      const digest = /\/blobs\/sha256:([0-9a-f]+)/.exec(call.url ?? '')?.[1];
      if (digest === undefined) return false;
      void readFile(join(home, 'layout-forged-1', 'blobs/sha256', digest)).then((bytes) => {
        if (bytes.length > 1 << 20) bytes[1 << 19]! ^= 1;
        answer.writeHead(200, { 'content-length': bytes.length }).end(bytes);
      });
      return true;
    };
    using front = await Front.start(open.host, forge);
    expect(await failure(puller.pull(`${front.host}/forged:1`))).toMatchObject({ code: 'unsafe' });
    expect((await puller.left()).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('refuses more bytes than were announced, and a layer whose files are not those of its diff id', async () => {
    const layout = join(home, 'lying');
    const layers = [await baseLayer()];
    await writeOciLayout(layout, 'x', { layers, diffIds: [`sha256:${'ab'.repeat(32)}`] });
    await skopeoCopy(`oci:${layout}:x`, `docker://${open.host}/lying:1`);
    expect(await failure(puller.pull(`${open.host}/lying:1`))).toMatchObject({ code: 'unsafe' });
    expect((await puller.left()).filter((name) => !name.startsWith('sha256-'))).toEqual([]);
    await put(open.host, 'more:1');
    const more: Intercept = (call, answer) => {
      if (!call.url?.includes('/blobs/')) return false;
      answer.writeHead(200, { 'transfer-encoding': 'chunked' });
      answer.end(Buffer.alloc(16 << 20));
      return true;
    };
    using front = await Front.start(open.host, more);
    const error = await failure(puller.pull(`${front.host}/more:1`));
    expect(['unsafe', 'too_large']).toContain(error.code);
  });

  it('refuses a document that is one thing by its header and another by its own word', async () => {
    await put(open.host, 'two-faced:1');
    const index = 'application/vnd.oci.image.index.v1+json';
    const lie: Intercept = (call, answer) => {
      if (!call.url?.includes('/manifests/')) return false;
      const manifest = {
        schemaVersion: 2,
        mediaType: 'application/vnd.oci.image.manifest.v1+json',
        config: {},
        layers: [],
        manifests: [],
      };
      answer.writeHead(200, { 'content-type': index }).end(JSON.stringify(manifest));
      return true;
    };
    using front = await Front.start(open.host, lie);
    expect(await failure(puller.pull(`${front.host}/two-faced:1`))).toMatchObject({ code: 'unsafe' });
  });

  it('asks mirrors first and in order, and the registry itself for what they do not have', async () => {
    await put(open.host, 'library/mirrored:1');
    await using empty = await TestRegistry.start();
    using first = await Front.start(empty.host);
    using second = await Front.start(open.host);
    const settings = { 'registry.example': { mirrors: [first.host, second.host] } };
    const pulled = await puller.pull('registry.example/library/mirrored:1', { settings });
    expect(pulled.manifest.layers.length).toBe(2);
    expect(first.seen.length).toBeGreaterThan(0);
    const nowhere = await failure(
      puller.pull('registry.invalid/library/other:1', {
        settings: { 'registry.invalid': { mirrors: [first.host] } },
      }),
    );
    expect(nowhere.message).toContain('registry.invalid');
  });
});

describe('a registry that wants to know who asks', skipFor(refusal), () => {
  it('is told the password that is kept for it, and refuses others with a hint to log in', async () => {
    await using registry = await TestRegistry.start({ login: 'basic' });
    await put(registry.host, 'app:1', ['--dest-creds', asArguments]);
    const name = `${registry.host}/app:1`;
    const nobody = await failure(puller.pull(name));
    expect(nobody).toMatchObject({ code: 'forbidden' });
    expect(nobody.hint).toContain(`coppice images login ${registry.host}`);
    const wrong = { ...password, password: 'another' };
    expect(
      await failure(puller.pull(name, { credentials: logins({ [registry.host]: wrong }) })),
    ).toMatchObject({ code: 'forbidden' });
    const pulled = await puller.pull(name, { credentials: logins({ [registry.host]: password }) });
    expect(pulled.manifest.layers.length).toBe(2);
  });

  it('gets a token from its service for just what is done', async () => {
    await using registry = await TestRegistry.start({ login: 'token' });
    await put(registry.host, 'team/app:1', ['--dest-creds', asArguments]);
    registry.tokenCalls.length = 0;
    const name = `${registry.host}/team/app:1`;
    expect(await failure(puller.pull(name))).toMatchObject({ code: 'forbidden' });
    await puller.pull(name, { credentials: logins({ [registry.host]: password }) });
    const scope = 'repository:team/app:pull';
    expect(registry.tokenCalls).toEqual([
      { scope, username: undefined },
      { scope, username: registryLogin.username },
    ]);
  });

  it('is trusted only with a certificate of an authority that is named', async () => {
    await using registry = await TestRegistry.start({ tls: true });
    await put(registry.host, 'app:1');
    const error = await failure(puller.pull(`${registry.host}/app:1`));
    expect(error).toMatchObject({ code: 'unavailable' });
    expect(error.message).toContain('certificate');
    const settings = { [registry.host]: { ca: registry.certificateFile! } };
    expect((await puller.pull(`${registry.host}/app:1`, { settings })).manifest.layers.length).toBe(2);
  });

  it('keeps the password to itself when it sends us elsewhere for content', async () => {
    await using registry = await TestRegistry.start({ login: 'basic' });
    await put(registry.host, 'app:1', ['--dest-creds', asArguments]);
    const content = await Front.start('127.0.0.1:1', (call, answer) => {
      void readFile(join(home, 'layout-app-1', 'blobs/sha256', call.url!.split('sha256:')[1]!)).then(
        (bytes) => answer.writeHead(200, { 'content-length': bytes.length }).end(bytes),
      );
      return true;
    });
    using front = await Front.start(registry.host, (call, answer) => {
      if (!call.url?.includes('/blobs/') || call.headers.authorization === undefined) return false;
      answer.writeHead(307, { location: `http://${content.host}${call.url}` }).end();
      return true;
    });
    await puller.pull(`${front.host}/app:1`, { credentials: logins({ [front.host]: password }) });
    expect(content.seen.length).toBe(3);
    for (const { headers } of content.seen) expect(headers.authorization).toBeUndefined();
    content[Symbol.dispose]();
  });

  it('cannot send us to what is not encrypted, nor the password to a service without TLS', async () => {
    for (const location of [
      'http://198.51.100.7/x',
      'file:///etc/passwd',
      'http://user:secret@127.0.0.1/x',
    ]) {
      using front = await Front.start('127.0.0.1:1', (_, answer) => {
        answer.writeHead(307, { location }).end();
        return true;
      });
      expect(await failure(puller.pull(`${front.host}/app:1`))).toMatchObject({ code: 'unsafe' });
    }
    using asking = await Front.start('127.0.0.1:1', (_, answer) => {
      answer
        .writeHead(401, { 'www-authenticate': 'Bearer realm="http://198.51.100.7/token",service="x"' })
        .end('{}');
      return true;
    });
    const credentials = logins({ [asking.host]: password });
    expect(await failure(puller.pull(`${asking.host}/app:1`, { credentials }))).toMatchObject({
      code: 'unsafe',
    });
    const far = new URL('https://registry.example/v2/');
    for (const inside of ['https://127.0.0.1:8443/', 'http://localhost:5000/', 'https://[::1]/'])
      expect(() => checkAddress(new URL(inside), far)).toThrow(expect.objectContaining({ code: 'unsafe' }));
  });

  it('is not told the login of the registry that it mirrors', async () => {
    using mirror = await Front.start('127.0.0.1:1', (_, answer) => {
      answer.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end('{}');
      return true;
    });
    const options = {
      settings: { 'registry.invalid': { mirrors: [mirror.host] } },
      credentials: logins({ 'registry.invalid': password }),
    };
    await failure(puller.pull('registry.invalid/app:1', options));
    expect(mirror.seen.length).toBeGreaterThan(0);
    for (const { headers } of mirror.seen) expect(headers.authorization).toBeUndefined();
  });
});

describe('logins', () => {
  const config = async (content: object | string): Promise<DockerConfigFile> => {
    const file = join(home, 'config.json');
    await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
    return new DockerConfigFile({ file, env: { HOME: home, PATH: `${join(home, 'bin')}:/usr/bin:/bin` } });
  };
  const encoded = (text: string): string => Buffer.from(text).toString('base64');

  it('are read from the file that docker login writes, for Docker Hub under its old name', async () => {
    const file = await config({
      auths: {
        'https://index.docker.io/v1/': { auth: encoded('me:p:w') },
        'ghcr.io': { auth: encoded('you:secret') },
        'https://old.example/v2/': { username: 'they', password: 'word' },
        'token.example': { auth: encoded('x:'), identitytoken: 'refresh' },
        'helped.example': {},
      },
    });
    expect(await file.find('docker.io')).toEqual({ kind: 'password', username: 'me', password: 'p:w' });
    expect(await file.find('ghcr.io')).toEqual({ kind: 'password', username: 'you', password: 'secret' });
    expect(await file.find('old.example')).toEqual({ kind: 'password', username: 'they', password: 'word' });
    expect(await file.find('token.example')).toEqual({ kind: 'identity-token', token: 'refresh' });
    expect(await file.find('helped.example')).toBeUndefined();
    expect(await file.find('other.example')).toBeUndefined();
  });

  it('come from the helper that the file names, which is told the registry and nothing else', async () => {
    await mkdir(join(home, 'bin'));
    const script = [
      '#!/bin/sh',
      'read -r server',
      `echo "$1 $server" >> ${home}/asked`,
      'case $server in',
      `  one.example) echo '{"ServerURL":"one.example","Username":"me","Secret":"from the helper"}' ;;`,
      `  two.example) echo '{"ServerURL":"two.example","Username":"<token>","Secret":"refresh"}' ;;`,
      `  bad.example) echo 'my secret is 1234'; exit 1 ;;`,
      '  *) echo "credentials not found in native keychain"; exit 1 ;;',
      'esac',
    ].join('\n');
    await writeFile(join(home, 'bin/docker-credential-test'), script);
    await chmod(join(home, 'bin/docker-credential-test'), 0o755);
    const file = await config({
      credHelpers: { 'one.example': 'test' },
      credsStore: 'test',
      auths: { 'three.example': { auth: encoded('a:b') } },
    });
    expect(await file.find('one.example')).toEqual({
      kind: 'password',
      username: 'me',
      password: 'from the helper',
    });
    expect(await file.find('two.example')).toEqual({ kind: 'identity-token', token: 'refresh' });
    expect(await file.find('three.example')).toEqual({ kind: 'password', username: 'a', password: 'b' });
    expect(await readFile(join(home, 'asked'), 'utf8')).toBe(
      'get one.example\nget two.example\nget three.example\n',
    );
    const error = await failure(file.find('bad.example'));
    expect(error.message).not.toContain('1234');
    expect(await failure((await config({ credsStore: '../../bin/sh' })).find('one.example'))).toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('in a file that cannot be read are an error that quotes none of it', async () => {
    for (const text of [
      '{"auths": {"a": {"auth": "c2VjcmV0',
      '{"auths": {"a": {"auth": 12345}}}',
      '{"auths":{"a":{"auth":"c2VjcmV0"}}}',
    ]) {
      const error = await failure((await config(text)).find('a'));
      expect(error).toMatchObject({ code: 'invalid_argument' });
      expect(JSON.stringify([error.message, String((error as { cause?: unknown }).cause)])).not.toMatch(
        /c2VjcmV0|12345/,
      );
    }
    const none = new DockerConfigFile({ file: join(home, 'missing/config.json'), env: {} });
    expect(await none.find('a')).toBeUndefined();
  });

  it('of our own are kept in a file that only its owner may read', async () => {
    const path = join(home, 'logins.json');
    const file = new LoginFile(path);
    await Promise.all([file.set('one.example', 'me', 'word'), file.set('two.example', 'you', 'another')]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(await new LoginFile(path).find('one.example')).toEqual({
      kind: 'password',
      username: 'me',
      password: 'word',
    });
    expect(await file.list()).toEqual([
      { registry: 'one.example', username: 'me' },
      { registry: 'two.example', username: 'you' },
    ]);
    expect(await file.remove('one.example')).toBe(true);
    expect(await file.remove('one.example')).toBe(false);
    expect(await file.find('one.example')).toBeUndefined();
    expect(await file.find('two.example')).toBeDefined();
  });

  it('with an identity token are exchanged for a token of the registry', async () => {
    let form = '';
    using service = await Front.start('127.0.0.1:1', (call, answer) => {
      call.on('data', (chunk: Buffer) => {
        form += chunk.toString('utf8');
      });
      call.on('end', () => answer.writeHead(200).end(JSON.stringify({ access_token: 'good' })));
      return true;
    });
    using registry = await Front.start('127.0.0.1:1', (call, answer) => {
      const known = call.headers.authorization === 'Bearer good';
      const challenge = `Basic realm="other", Bearer realm="http://${service.host}/token",service="the \\"service\\"",scope="x"`;
      answer.writeHead(known ? 404 : 401, known ? {} : { 'www-authenticate': challenge }).end('{}');
      return true;
    });
    const credentials = logins({ [registry.host]: { kind: 'identity-token', token: 'refresh' } });
    expect(await failure(puller.pull(`${registry.host}/app:1`, { credentials }))).toMatchObject({
      code: 'not_found',
    });
    expect(Object.fromEntries(new URLSearchParams(form))).toEqual({
      grant_type: 'refresh_token',
      refresh_token: 'refresh',
      client_id: 'coppice',
      service: 'the "service"',
      scope: 'repository:app:pull',
    });
  });
});
