import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  eventually,
  type LayerEntry,
  type LayoutImage,
  layerTar,
  type RunningDaemon,
  registryLogin,
  registryRefusal,
  skipFor,
  skopeoCopy,
  TestRegistry,
  writeOciLayout,
} from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { entriesInside, entriesOf, failure, ImageBench, run } from './image-bench.ts';

const cli = join(import.meta.dirname, '../../packages/cli/src/main.ts');

describe('images of a registry', skipFor(registryRefusal()), () => {
  let bench: ImageBench;
  let registry: TestRegistry;
  let daemon: RunningDaemon;
  let directory: string;
  let shell: Buffer;

  beforeAll(async () => {
    bench = await ImageBench.open();
    ({ registry, daemon, directory, shell } = bench);
  });
  afterAll(() => bench?.[Symbol.asyncDispose]());

  const put = (name: string, image: LayoutImage): Promise<string> => bench.put(name, image);
  const coppice = (...argv: string[]): Promise<string> => bench.coppice(...argv);

  test('a sandbox is made from one that is not here yet, and shows what other tools unpack, entry by entry', async () => {
    const oddities: LayerEntry[] = [
      { name: 'odd/', type: 'directory', mode: 0o1777 },
      { name: 'odd/gone', text: 'x' },
      {
        name: 'odd/kept',
        text: 'kept',
        mode: 0o4711,
        uid: 1000,
        gid: 1001,
        mtime: new Date(1_600_000_000_000),
      },
      { name: 'odd/same', type: 'link', linkname: 'odd/kept' },
      { name: 'odd/link', type: 'symlink', linkname: '../../../etc/passwd', uid: 7, gid: 8 },
      { name: 'odd/queue', type: 'fifo', mode: 0o600 },
      { name: 'old/', type: 'directory', mode: 0o750, uid: 33, gid: 33 },
      { name: 'old/inside', text: 'x' },
      { name: 'home/u/', type: 'directory', mode: 0o700, uid: 1000, gid: 1000 },
    ];
    const changes: LayerEntry[] = [
      { name: 'odd/.wh.gone' },
      { name: 'odd/new', text: 'new' },
      { name: 'old/.wh..wh..opq' },
      { name: 'old/', type: 'directory', mode: 0o755 },
      { name: 'old/fresh', text: 'fresh' },
      { name: 'home/u/.profile', text: 'mine', uid: 1000, gid: 1000 },
      // In a directory that no other layer has: it must not be seen.
      { name: 'only/here/.wh.ghost' },
      { name: 'only/here/real', text: '' },
    ];
    const name = await put('odd:1', {
      layers: [shell, await layerTar(...oddities), await layerTar(...changes)],
    });
    await run('umoci', ['unpack', '--image', `${join(directory, 'odd-1')}:x`, join(directory, 'bundle')]);
    const theirs = join(directory, 'bundle/rootfs');
    await using sandbox = await daemon.client.sandboxes.create({ image: name });
    expect(sandbox.info?.image).toBe(name);
    expect(await entriesInside(sandbox)).toEqual(await entriesOf(theirs));
    expect((await sandbox.exec('ls /only/here /odd /home/u -a')).stdout).not.toContain('ghost');
  });

  test('processes get what the image says: environment, user, directory, and `run` what it starts', async () => {
    const account: LayerEntry[] = [
      { name: 'etc/passwd', text: 'root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/home/app:/bin/sh\n' },
      { name: 'etc/group', text: 'root:x:0:\napp:x:1235:\nothers:x:77:app\n' },
      // Where the image has none, /workspace is of its user.
      { name: '.wh.workspace' },
    ];
    const config = {
      Env: ['GREETING=hello world', 'PATH=/usr/local/bin:/usr/bin:/bin', '1BAD=x', 'EMPTY='],
      User: 'app:others',
      WorkingDir: '/srv/made later',
      Entrypoint: ['/bin/sh', '-c', 'echo "$GREETING from $(id -u):$(id -g) in $PWD with $0 $1"; exit 7'],
      Cmd: ['default', 'words'],
      ExposedPorts: { '8080/tcp': {} },
      Labels: { 'org.example.team': 'blue' },
      StopSignal: 'SIGQUIT',
    };
    const name = await put('app:1', { layers: [shell, await layerTar(...account)], config });
    const ended = await run(process.execPath, [cli, '--home', daemon.home, 'run', '--image', name]).catch(
      (error) => error,
    );
    expect(ended).toMatchObject({
      code: 7,
      stdout: 'hello world from 1234:77 in /srv/made later with default words\n',
    });
    await using sandbox = await daemon.client.sandboxes.create({ image: name, env: { EMPTY: 'full' } });
    const seen = await sandbox.exec('echo "$GREETING|$EMPTY|$HOME|$(id -un)|$PWD"');
    expect(seen.stdout).toBe('hello world|full|/home/app|app|/srv/made later\n');
    expect((await sandbox.exec('touch /workspace/mine && stat -c %u:%g /workspace')).stdout).toBe(
      '1234:77\n',
    );
    const asked = await sandbox.exec('echo "$GREETING|$(id -u):$(id -g)|$PWD"', {
      user: 'root',
      cwd: '/',
      env: { GREETING: 'other' },
    });
    expect(asked.stdout).toBe('other|0:0|/\n');
    expect((await sandbox.exec('id -g', { user: '1234:1235' })).stdout).toBe('1235\n');
    const fork = await sandbox.fork();
    expect((await fork.sandboxes[0]!.exec('echo "$GREETING in $PWD"')).stdout).toBe(
      'hello world in /srv/made later\n',
    );
    await fork.sandboxes[0]!.destroy();
    const { settings } = await daemon.client.images.get(name);
    expect(settings).toMatchObject({
      user: 'app:others',
      working_dir: '/srv/made later',
      cmd: ['default', 'words'],
      exposed_ports: ['8080/tcp'],
      labels: { 'org.example.team': 'blue' },
      stop_signal: 'SIGQUIT',
    });
    const shown = await coppice('images', 'inspect', name);
    for (const text of ['8080/tcp', 'org.example.team=blue', 'SIGQUIT', 'app:others', 'GREETING=hello world'])
      expect(shown).toContain(text);
  });

  test.for(['container', 'gvisor'] as const)(
    'a %s sandbox is stopped with the signal that its image names',
    async (driver, { skip }) => {
      const { drivers } = await daemon.client.doctor();
      skip(drivers[driver]?.usable !== true, `${driver} cannot be used on this machine`);
      const trap =
        'for s in TERM USR2; do trap "echo $s >> /root/got; exit" $s; done; echo > /root/ready; while :; do sleep 0.1; done';
      const name = await put(`stopped-${driver}:1`, {
        layers: [shell],
        config: { Entrypoint: ['/bin/sh', '-c', trap], StopSignal: 'SIGUSR2' },
      });
      await using sandbox = await daemon.client.sandboxes.create({ image: name, driver });
      await sandbox.jobs.start(['/bin/sh', '-c', trap]);
      await eventually(
        'the program listens',
        async () => (await sandbox.exec('test -e /root/ready')).exit_code === 0,
      );
      await sandbox.stop();
      await sandbox.start();
      expect((await sandbox.exec('cat /root/got')).stdout).toBe('USR2\n');
    },
  );

  test('two that share layers hold them once, and what one of them alone had goes with it', async () => {
    const own = (text: string): Promise<Buffer> => layerTar({ name: 'which', text });
    const one = await put('share:1', { layers: [shell, await own('one')] });
    const two = await put('share:2', { layers: [shell, await own('two')] });
    const first = await daemon.client.images.pull(one);
    const states: string[] = [];
    const second = await daemon.client.images.pull(two, {
      onLayer: ({ digest, state }) => states.push(`${digest} ${state}`),
    });
    expect(second.layers[0]).toBe(first.layers[0]);
    expect(
      states.filter((text) => text.endsWith('downloading')).every((text) => !text.includes(first.layers[0]!)),
    ).toBe(true);
    await daemon.client.images.remove(one);
    await using sandbox = await daemon.client.sandboxes.create({ image: two });
    expect((await sandbox.exec('cat /which')).stdout).toBe('two');
    const error = await failure(daemon.client.images.remove(two));
    expect(error).toMatchObject({ code: 'in_use' });
  });

  test('one that has the same layer several times starts, and the last of them counts', async () => {
    const empty = await layerTar();
    const twice = await layerTar(
      { name: 'd/', type: 'directory' },
      { name: 'd/a', text: 'a' },
      { name: 'd/.wh.b' },
    );
    const between = await layerTar(
      { name: 'd/.wh.a' },
      { name: 'd/b', text: 'b' },
      { name: 'd/c', text: 'c' },
    );
    const name = await put('again:1', { layers: [empty, shell, twice, empty, between, twice, empty] });
    const umoci = [`${join(directory, 'again-1')}:x`, join(directory, 'again-bundle')] as const;
    await run('umoci', ['unpack', '--image', ...umoci]);
    await using sandbox = await daemon.client.sandboxes.create({ image: name });
    expect((await sandbox.exec('ls /d')).stdout).toBe('a\nc\n');
    expect(await entriesInside(sandbox)).toEqual(await entriesOf(join(umoci[1], 'rootfs')));
  });

  test('a newer image takes the name, and what stands on the older one stays on it until it goes', async () => {
    const versions = await Promise.all(['old', 'new'].map((text) => layerTar({ name: 'version', text })));
    const name = await put('moving:latest', { layers: [shell, versions[0]!] });
    const old = await daemon.client.images.pull(name);
    const sandbox = await daemon.client.sandboxes.create({ image: name });
    await put('moving:latest', { layers: [shell, versions[1]!] });
    // Only who asks for it by `pull` gets another than the one that is here.
    expect((await daemon.client.images.pull(name, { if_missing: true })).id).toBe(old.id);
    const fresh = await daemon.client.images.pull(name);
    expect(fresh.id).not.toBe(old.id);
    expect(await daemon.client.images.pull(name)).toMatchObject({ id: fresh.id });
    expect((await daemon.client.images.get(old.id)).name).toBe(
      `${registry.host}/moving@${old.registry_digest}`,
    );
    expect((await sandbox.exec('cat /version')).stdout).toBe('old');
    await sandbox.stop();
    await daemon.restart();
    await sandbox.start();
    expect((await sandbox.exec('cat /version')).stdout).toBe('old');
    await using other = await daemon.client.sandboxes.create({ image: `${registry.host}/moving` });
    expect((await other.exec('cat /version')).stdout).toBe('new');
    expect((await daemon.client.images.prune()).removed).toEqual([]);
    await sandbox.destroy();
    expect((await daemon.client.images.prune()).removed).toMatchObject([{ id: old.id }]);
    expect(await failure(daemon.client.images.get(old.id))).toMatchObject({ code: 'not_found' });
  });

  test('snapshots, forks, differences and merges work on layers as on any image', async () => {
    const entries: LayerEntry[] = [
      { name: 'data/', type: 'directory' },
      { name: 'data/a', text: 'a\n' },
      { name: 'data/b', text: 'b\n' },
    ];
    const name = await put('data:1', {
      layers: [
        shell,
        await layerTar(...entries),
        await layerTar({ name: 'data/.wh.b' }, { name: 'data/c', text: 'c\n' }),
      ],
    });
    await using sandbox = await daemon.client.sandboxes.create({ image: name });
    const snapshot = await sandbox.snapshot({ name: 'base' });
    const forked = await daemon.client.snapshots.fork(snapshot.id);
    const worker = forked.sandboxes[0]!;
    await worker.exec('echo changed > /data/a; rm /data/c; echo b again > /data/b');
    const { changes } = await daemon.client.diff(snapshot.id, worker.id);
    expect(changes.map(({ path, change }) => `${change} ${path}`)).toEqual([
      'modified /data/a',
      'added /data/b',
      'removed /data/c',
    ]);
    await sandbox.merge(worker.id);
    expect((await sandbox.exec('cd /data; ls; cat a b')).stdout).toBe('a\nb\nchanged\nb again\n');
    await worker.destroy();
  });

  test('a hostile image is refused, and nothing of it is left', async () => {
    const before = await daemon.client.images.list();
    const layers = [shell, await layerTar({ name: '../../escaped', text: 'x' })];
    const escaping = await failure(daemon.client.images.pull(await put('hostile:1', { layers })));
    expect(escaping).toMatchObject({ code: 'unsafe' });
    const linked = [
      shell,
      await layerTar({ name: '.wh.proc' }),
      await layerTar({ name: 'proc', type: 'symlink', linkname: '/etc' }),
    ];
    const error = await failure(
      daemon.client.sandboxes.create({ image: await put('hostile:2', { layers: linked }) }),
    );
    expect(error).toMatchObject({ code: 'unsafe' });
    expect(await daemon.client.images.list()).toEqual(before);
    const kept = new Set(before.flatMap((image) => image.layers));
    const present = (await run('sh', ['-c', `cat ${daemon.home}/layers/*/layer.json`])).stdout.match(
      /sha256:[0-9a-f]{64}/g,
    );
    expect(new Set(present)).toEqual(kept);
    expect(
      (
        await run('find', [
          join(daemon.home, 'layers'),
          join(daemon.home, 'blobs'),
          '-mindepth',
          '1',
          '-maxdepth',
          '1',
          '-name',
          '.*',
        ])
      ).stdout,
    ).toBe('');
  });

  test('a pull that is given up leaves no image and goes on the next time', async () => {
    const name = await put('large:1', {
      layers: [shell, await layerTar({ name: 'large', text: Buffer.alloc(32 << 20, 'x1') })],
      packing: 'plain',
    });
    const controller = new AbortController();
    const pulling = daemon.client.images.pull(name, {
      signal: controller.signal,
      onLayer: ({ state }) => {
        if (state === 'downloading') controller.abort();
      },
    });
    await expect(pulling).rejects.toBeDefined();
    expect((await daemon.client.images.list()).some((image) => image.name === name)).toBe(false);
    expect((await daemon.client.images.pull(name)).name).toBe(name);
  });

  test('a name that no registry has is said to be in neither place, and a malformed one is refused at the door', async () => {
    const missing = await failure(daemon.client.sandboxes.create({ image: `${registry.host}/missing:1` }));
    expect(missing).toMatchObject({ code: 'not_found' });
    expect(missing.message).toContain('there is no image');
    expect(missing.hint).toContain('`coppice images`');
    for (const image of ['Upper', 'a/../b', `${registry.host}/a@sha256:12`, 'a b', '-x'])
      expect(await failure(daemon.client.sandboxes.create({ image }))).toMatchObject({
        code: 'invalid_argument',
      });
  });

  test('login keeps a password that the registry takes, tells it to nobody, and logout forgets it', async () => {
    await using closed = await TestRegistry.start({ login: 'token' });
    const layout = join(directory, 'closed');
    await writeOciLayout(layout, 'x', { layers: [await layerTar({ name: 'file', text: '' })] });
    const credentials = `${registryLogin.username}:${registryLogin.password}`;
    await skopeoCopy(`oci:${layout}:x`, `docker://${closed.host}/secret:1`, '--dest-creds', credentials);
    const name = `${closed.host}/secret:1`;
    const refused = await failure(daemon.client.images.pull(name));
    expect(refused).toMatchObject({ code: 'forbidden' });
    expect(refused.hint).toContain(`coppice images login ${closed.host}`);
    const wrong = { registry: closed.host, username: registryLogin.username, password: 'wrong' };
    expect(await failure(daemon.client.images.login(wrong))).toMatchObject({ code: 'forbidden' });
    expect(await daemon.client.images.logins()).toEqual([]);
    const file = join(directory, 'password');
    await writeFile(file, `${registryLogin.password}\n`);
    const login = `${process.execPath} ${cli} --home ${daemon.home} images login ${closed.host} -u ${registryLogin.username} --password-stdin < ${file}`;
    expect((await run('sh', ['-c', login])).stdout).toContain('logged in');
    expect(await daemon.client.images.logins()).toEqual([
      { registry: closed.host, username: registryLogin.username },
    ]);
    expect((await daemon.client.images.pull(name)).name).toBe(name);
    const { events } = await daemon.client.events.list();
    expect(JSON.stringify(events)).not.toContain(registryLogin.password);
    expect(
      (await run('grep', ['-rl', registryLogin.password, daemon.home]).catch((error) => error)).stdout
        .trim()
        .split('\n'),
    ).toEqual([join(daemon.home, 'registries.json')]);
    await coppice('images', 'logout', closed.host);
    expect(await coppice('images', 'logins')).toBe('No logins.');
    expect(await failure(daemon.client.images.pull(name))).toMatchObject({ code: 'forbidden' });
  });

  test('an image of a registry starts on gVisor as well', async ({ skip }) => {
    const { drivers } = await daemon.client.doctor();
    skip(drivers.gvisor?.usable !== true, 'gVisor cannot be used on this machine');
    const name = await put('gvisor:1', {
      layers: [
        shell,
        await layerTar({ name: 'd/', type: 'directory' }, { name: 'd/a', text: 'a' }),
        await layerTar({ name: 'd/.wh.a' }, { name: 'd/b', text: 'b' }),
      ],
      config: { WorkingDir: '/d' },
    });
    await using sandbox = await daemon.client.sandboxes.create({ image: name, driver: 'gvisor' });
    expect((await sandbox.exec('ls; pwd')).stdout).toBe('b\n/d\n');
  });
});
