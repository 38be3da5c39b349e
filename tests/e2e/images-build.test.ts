import { existsSync } from 'node:fs';
import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import type { BuildEvent } from '@coppice/protocol';
import { packContext } from '@coppice/sdk';
import { type LayerEntry, layerTar, registryRefusal, skipFor, skopeoCopy } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { entriesInside, entriesOf, failure, ImageBench, run } from './image-bench.ts';

const accounts: LayerEntry[] = [
  { name: 'etc/passwd', text: 'root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/home/app:/bin/sh\n' },
  { name: 'etc/group', text: 'root:x:0:\napp:x:1235:\nothers:x:77:app\n' },
];

const entries: LayerEntry[] = [
  { name: 'deep/', type: 'directory' },
  { name: 'deep/file', text: 'deep\n', mode: 0o640, uid: 1, gid: 2 },
  { name: 'hard', type: 'link', linkname: 'deep/file' },
  { name: 'link', type: 'symlink', linkname: 'deep/file' },
];

describe('an image from a Dockerfile', skipFor(registryRefusal()), () => {
  let bench: ImageBench;
  let base: string;
  let count = 0;

  beforeAll(async () => {
    bench = await ImageBench.open();
    const config = { Env: ['PATH=/usr/local/bin:/usr/bin:/bin:/sbin', 'INHERITED=yes'], Cmd: ['/bin/sh'] };
    base = await bench.put('base:1', { layers: [bench.shell, await layerTar(...accounts)], config });
  });
  afterAll(() => bench?.[Symbol.asyncDispose]());

  const context = async (files: Record<string, string>): Promise<string> => {
    count += 1;
    const directory = bench.path(`context-${count}`);
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory);
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(directory, name)), { recursive: true });
      await writeFile(join(directory, name), text);
    }
    return directory;
  };
  const build = async (
    dockerfile: string,
    options: Partial<Parameters<ImageBench['client']['images']['build']>[0]> & { directory?: string } = {},
  ) => {
    const { directory, ...rest } = options;
    const events: Exclude<BuildEvent, { type: 'image' }>[] = [];
    const image = await bench.client.images.build({
      name: 'built:1',
      dockerfile: dockerfile.replaceAll('BASE', base),
      ...(directory === undefined ? {} : { context: await packContext(directory) }),
      onEvent: (event) => events.push(event),
      ...rest,
    });
    const states = events.flatMap((event) =>
      event.type === 'step' && event.state !== 'running' ? [event.state] : [],
    );
    const output = events.flatMap((event) => (event.type === 'output' ? [event.text] : [])).join('');
    return { image, states, output, events };
  };
  const show = async (image: string, command: string): Promise<string> => {
    await using sandbox = await bench.client.sandboxes.create({ image });
    return (await sandbox.exec(command)).stdout;
  };

  test('holds what its instructions say, of several stages, and a second build does nothing again', async () => {
    const directory = await context({
      'src/main.txt': 'main\n',
      'src/deep/more.txt': 'more\n',
      'src/left.log': 'left out\n',
      'a.conf': 'a\n',
      'b.conf': 'b\n',
      '.dockerignore': '**/*.log\n',
    });
    await symlink('main.txt', join(directory, 'src/link'));
    await chmod(join(directory, 'a.conf'), 0o640);
    const dockerfile = `
ARG VERSION=1
FROM BASE AS maker
ARG VERSION
ENV GREETING="hello $VERSION" OTHER=$\{GREETING:-none}
WORKDIR /make
COPY src ./
RUN echo "$GREETING $VERSION $INHERITED" > made && chown 5:6 made
RUN ["/bin/sh", "-c", "echo list > list"]
RUN <<EOF
echo one > heredoc
echo "$GREETING" >> heredoc
EOF
RUN cat <<END > piped
piped $GREETING
END

FROM BASE AS unused
RUN false

FROM BASE
LABEL org.example.a=1 "org.example.b"="two words"
USER app:others
WORKDIR work
COPY --from=maker /make/made /make/heredoc /got/
COPY --from=maker --chown=app:app /make /all
COPY --chown=1:2 --chmod=755 a.conf renamed.conf
COPY *.conf /conf/
COPY <<TEXT /etc/text
made by $GREETING here
TEXT
ADD b.conf /added
RUN id -u > /tmp/id; cp /tmp/id id 2>/dev/null || true
ENV PORT=80
EXPOSE $PORT 53/udp
STOPSIGNAL SIGUSR1
VOLUME /data
HEALTHCHECK --interval=1m30s --retries=3 CMD true
SHELL ["/bin/sh", "-ec"]
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["echo started $PORT"]
`;
    const first = await build(dockerfile, { directory, args: { VERSION: '2' } });
    expect(first.states).not.toContain('cached');
    const seen = await show(
      'built:1',
      'cd /got && cat made heredoc && stat -c "%u:%g %a" made; cd /all && cat piped list && stat -c "%u:%g" . made; ' +
        'ls /all; stat -c "%u:%g %a" /work/renamed.conf; ls /conf; cat /etc/text /added; pwd; id -u',
    );
    expect(seen.split('\n')).toEqual([
      'hello 2 2 yes',
      'one',
      'hello 2',
      '5:6 644',
      'piped hello 2',
      'list',
      '1234:1235',
      '1234:1235',
      ...['deep', 'heredoc', 'link', 'list', 'made', 'main.txt', 'piped'],
      '1:2 755',
      ...['a.conf', 'b.conf'],
      'made by  here',
      'b',
      '/all',
      '1234',
      '',
    ]);
    expect((await bench.client.images.get('built:1')).settings).toMatchObject({
      env: { INHERITED: 'yes', PORT: '80' },
      labels: { 'org.example.a': '1', 'org.example.b': 'two words' },
      user: 'app:others',
      working_dir: '/work',
      exposed_ports: ['80/tcp', '53/udp'],
      stop_signal: 'SIGUSR1',
      entrypoint: ['/bin/sh', '-c'],
      cmd: ['echo started $PORT'],
    });
    expect(await bench.coppice('run', '--image', 'built:1')).toBe('started 80');
    const second = await build(dockerfile, { directory, args: { VERSION: '2' } });
    expect(second.image.id).toBe(first.image.id);
    const changing = second.events.filter(
      (event) =>
        event.type === 'step' && /^(?:RUN|COPY|ADD|WORKDIR)/.test(event.text) && event.state !== 'running',
    );
    expect(changing.map((event) => event.type === 'step' && event.state)).toEqual(
      changing.map(() => 'cached'),
    );
    expect((await bench.client.sandboxes.list()).filter(({ name }) => name.startsWith('build-'))).toEqual([]);

    // Only what depends on what changed is done again.
    await writeFile(join(directory, 'src/main.txt'), 'changed\n');
    const third = await build(dockerfile, { directory, args: { VERSION: '2' } });
    expect(third.image.id).not.toBe(first.image.id);
    expect(third.states).toContain('cached');
    expect(await show('built:1', 'cat /all/main.txt')).toBe('changed\n');
    const again = await build('FROM BASE\nRUN echo x\n', { no_cache: true });
    const still = await build('FROM BASE\nRUN echo x\n', { no_cache: true });
    expect([...again.states, ...still.states]).toEqual(['done', 'done']);
  });

  test('has the same entries as buildah makes of the same Dockerfile with runc', async ({ skip }) => {
    const directory = await context({ 'app/one': '1\n', 'app/two': '2\n', 'other.txt': 'o\n' });
    await run('tar', [
      '-C',
      directory,
      '--owner=7',
      '--group=8',
      '-czf',
      join(directory, 'packed.data'),
      'app',
    ]);
    await run('tar', ['-C', directory, '-cf', join(directory, 'plain.tar'), './app', './other.txt']);
    const top = [
      { name: './', type: 'directory', mode: 0o711, uid: 9, gid: 9 },
      { name: './app/', type: 'directory', mode: 0o2750, uid: 9, gid: 10 },
    ] as const;
    await writeFile(join(directory, 'topped.tar'), await layerTar(...top));
    // It has no entry of the directory that its file is in.
    await writeFile(join(directory, 'implied.tar'), await layerTar({ name: 'app/file', text: 'x', uid: 3 }));
    const dockerfile = `
FROM BASE AS maker
WORKDIR /src
COPY app .
RUN mkdir -p /out/deep && cp one /out/deep/one && chown -R 9:8 /out && chmod 2750 /out && ln -s deep/one /out/link
FROM BASE
RUN rm -r /etc/group && mkdir -p /opt/new/dir && echo text > /opt/new/dir/file
COPY --from=maker /out /opt/out
COPY --chown=3:4 other.txt /opt/
ADD packed.data /opt/unpacked/
ADD plain.tar /opt/plain/
RUN mkdir -p -m 700 /opt/there/app /opt/there/kept && chown -R 11:12 /opt/there && echo x > /opt/there/app/more
ADD packed.data /opt/there/
RUN mkdir -p -m 700 /opt/top/app && chown -R 11:12 /opt/top
ADD topped.tar /opt/top/
ADD topped.tar /opt/fresh/
ADD implied.tar /opt/top/
RUN mkdir -p -m 700 /opt/copied/app && chown -R 11:12 /opt/copied
COPY . /opt/copied/
ADD other.txt /opt/added.txt
COPY plain.tar /opt/
WORKDIR /opt/work
RUN ln /opt/other.txt hard
`;
    await build(dockerfile, { directory, name: 'ours:1' });
    const root = bench.path('buildah');
    const file = bench.path('Dockerfile.buildah');
    await writeFile(file, dockerfile.replaceAll('BASE', base));
    const storage = ['--root', `${root}/root`, '--runroot', `${root}/run`, '--storage-driver', 'vfs'];
    try {
      const made = await run('buildah', [
        ...storage,
        ...['build', '--isolation', 'oci', '--runtime', 'runc', '--network', 'none', '--tls-verify=false'],
        ...['--layers=false', '-t', `oci:${root}/made:x`, '-f', file, directory],
      ]).catch((error) => error);
      skip(made instanceof Error, `buildah builds nothing here: ${String(made.stderr).slice(-300)}`);
      await run('umoci', ['unpack', '--image', `${root}/made:x`, `${root}/bundle`]);
      const withoutTimes = (lines: string[]) =>
        lines.map((line) => line.replace(/ \d{4}-\d\d-\d\d [\d:.]+$/, '')).filter((line) => line !== '');
      await using sandbox = await bench.client.sandboxes.create({ image: 'ours:1' });
      expect(withoutTimes(await entriesInside(sandbox))).toEqual(
        withoutTimes(await entriesOf(`${root}/bundle/rootfs`)),
      );
    } finally {
      await run('buildah', [...storage, 'rm', '--all']).catch(() => {});
      await rm(root, { recursive: true, force: true });
    }
  });

  test('is pushed without the layers of its base that the registry has', async () => {
    const directory = await context({ 'app/one': '1\n' });
    const dockerfile = 'FROM BASE\nCOPY app /app\nRUN rm /etc/passwd && echo made > /app/made\n';
    await build(dockerfile, { directory, name: 'team/built:1' });
    const to = `${bench.registry.host}/team/built:1`;
    const states: Record<string, string> = {};
    const pushed = await bench.client.images.push('team/built:1', {
      to,
      onLayer: ({ digest, state }) => {
        states[digest] = state;
      },
    });
    const layersOf = async (name: string): Promise<string[]> =>
      JSON.parse((await run('skopeo', ['inspect', '--tls-verify=false', `docker://${name}`])).stdout).Layers;
    const below = await layersOf(base);
    const layers = await layersOf(to);
    expect(layers.slice(0, below.length)).toEqual(below);
    expect(layers.length).toBeGreaterThan(below.length);
    // The base is there in another repository; the rest is new, the configuration too.
    const mounted = Object.keys(states).filter((digest) => states[digest] === 'mounted');
    expect(mounted.sort()).toEqual([...below].sort());
    expect(Object.values(states).filter((state) => state === 'done')).toHaveLength(
      layers.length - below.length + 1,
    );
    expect(pushed.uploaded_bytes).toBeLessThan(100_000);
    expect(await bench.client.images.push('team/built:1', { to })).toMatchObject({
      uploaded_bytes: 0,
      digest: pushed.digest,
    });
    const [layout, bundle] = [bench.path('built-layout'), bench.path('built-bundle')];
    for (const path of [layout, bundle]) await rm(path, { recursive: true, force: true });
    await skopeoCopy(`docker://${to}`, `oci:${layout}:x`);
    await run('umoci', ['unpack', '--image', `${layout}:x`, bundle]);
    await using sandbox = await bench.client.sandboxes.create({ image: 'team/built:1' });
    expect(await entriesInside(sandbox)).toEqual(await entriesOf(`${bundle}/rootfs`));
  });

  test('shows mounts to one command alone: secrets reach no image and no snapshot, caches come back', async () => {
    const directory = await context({ 'bound/file': 'bound\n' });
    const secret = 'a-secret-word-of-this-build';
    const dockerfile = `
FROM BASE
RUN mkdir -p /kept && echo before > /kept/before
RUN --mount=type=secret,id=token --mount=type=secret,id=token,target=/etc/token --mount=type=secret,id=token,env=TOKEN \\
    cat /run/secrets/token /etc/token > /dev/null && test "$TOKEN" = "$(cat /etc/token)" && echo $\{#TOKEN} > /length
RUN --mount=type=bind,source=bound,target=/mnt/bound cat /mnt/bound/file > /copied && rm /mnt/bound/file
RUN --mount=type=cache,target=/kept --mount=type=tmpfs,target=/scratch echo more >> /kept/log && touch /scratch/x && cp /kept/log /log
`;
    const secrets = { token: secret };
    await build(dockerfile, { directory, secrets, name: 'mounted:1' });
    const seen = await show(
      'mounted:1',
      'cat /length /copied /log /kept/before; ls -d /mnt/* /scratch /etc/token /run/secrets/* /kept/log',
    );
    expect(seen).toBe(`${secret.length}\nbound\nmore\nbefore\n`);
    await build(dockerfile, { directory, secrets, name: 'mounted:2', no_cache: true });
    expect(await show('mounted:2', 'cat /log')).toBe('more\nmore\n');
    const { events } = await bench.client.events.list();
    expect(JSON.stringify(events)).not.toContain(secret);
    const found = await run('grep', ['-rlaF', secret, bench.daemon.home, '--exclude=pool.img']).catch(
      (error) => error,
    );
    expect(found.stdout).toBe('');
    const missing = await failure(
      build('FROM BASE\nRUN --mount=type=secret,id=none,required=true cat /run/secrets/none\n'),
    );
    expect(missing.message).toContain('the secret none was not given');
  });

  test('whose build fails leaves the failed step to look into, and no sandbox', async () => {
    const before = await bench.client.snapshots.list();
    const secrets = { token: 'another-secret-word' };
    const error = await failure(
      build(
        'FROM BASE\nWORKDIR /here\nRUN --mount=type=secret,id=token,target=/here/token echo half > half; cat token >&2; exit 3\n',
        { secrets },
      ),
    );
    expect(error).toMatchObject({ code: 'build_failed', details: { line: 3, exit_code: 3 } });
    const id = String(error.details?.snapshot_id);
    expect(error.hint).toContain(`coppice shell ${id} -w /here`);
    const forked = await bench.client.snapshots.fork(id);
    const sandbox = forked.sandboxes[0]!;
    expect((await sandbox.exec('cd /here && ls && cat half')).stdout).toBe('half\nhalf\n');
    await sandbox.destroy();
    expect((await bench.client.sandboxes.list()).filter(({ name }) => name.startsWith('build-'))).toEqual([]);
    expect((await bench.client.images.prune({ builds: true })).build_snapshots).toBeGreaterThan(
      before.length,
    );
    expect((await bench.client.snapshots.list()).length).toBe(0);
  });

  test('may stand on nothing, and reaches only the network that it is given', async () => {
    const directory = await context({ 'bin/tool': 'tool' });
    const { image } = await build('FROM scratch\nCOPY bin /bin\nCMD ["/bin/tool"]\n', {
      directory,
      name: 'empty:1',
    });
    expect(image.layers).toHaveLength(1);
    await bench.coppice('images', 'export', 'empty:1', '-o', bench.path('empty.tar'));
    const { output } = await build('FROM BASE\nRUN grep -c : /proc/net/dev\n');
    const loud = await build('FROM BASE\nRUN yes | head -c 20000000\n');
    expect(loud.output.length).toBeLessThan(6_000_000);
    expect(loud.events.at(-2)).toMatchObject({ type: 'warning' });
    // The loopback, and nothing else.
    expect(output.trim()).toBe('1');
  });

  test.each([
    ['ONBUILD RUN x', 'ONBUILD'],
    ['ADD https://example.org/x /x', 'ADD of https://example.org/x'],
    ['RUN --security=insecure true', 'RUN --security=insecure'],
    ['RUN --mount=type=ssh true', '--mount=type=ssh'],
    ['RUN --network=host true', 'RUN --network=host'],
    ['COPY --parents a b', 'COPY --parents'],
    ['FROM --platform=linux/s390x x', 'an image for linux/s390x'],
  ])('with what is not supported is refused by name: %s', async (line, name) => {
    const error = await failure(build(`FROM BASE\n${line}\n`));
    expect(error).toMatchObject({ code: 'unsupported', details: { line: 2 } });
    expect(error.message).toContain(name);
  });

  test('has what ADD finds in local archives, and nothing outside of the image is touched by one', async () => {
    const directory = await context({ 'text.gz': 'no archive' });
    await writeFile(join(directory, 'packed.tar.xz'), Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0]));
    await writeFile(join(directory, 'archive'), zstdCompressSync(await layerTar(...entries)));
    await writeFile(join(directory, 'note.gz'), gzipSync('no tar in it'));
    await build('FROM BASE\nADD --chown=5:6 archive text.gz note.gz /in/\n', { directory, name: 'added:1' });
    expect(
      await show('added:1', 'cd /in; cat deep/file text.gz; stat -c %u:%a deep/file; cat hard; ls'),
    ).toBe('deep\nno archive5:640\ndeep\ndeep\nhard\nlink\nnote.gz\ntext.gz\n');
    expect(await failure(build('FROM BASE\nADD packed.tar.xz /x/\n', { directory }))).toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('ADD of packed.tar.xz, an archive packed with xz'),
      details: { line: 2 },
    });
    const canary = bench.path('canary');
    for (const hostile of [
      [{ name: `../../../../../../..${canary}`, text: 'x' }],
      [
        { name: 'out', type: 'symlink', linkname: bench.directory },
        { name: 'out/canary', text: 'x' },
      ],
      [{ name: 'hard', type: 'link', linkname: '../../../../etc/shadow' }],
      [{ name: 'null', type: 'character-device', devmajor: 1, devminor: 3 }],
    ] as LayerEntry[][]) {
      await writeFile(join(directory, 'hostile'), await layerTar(...hostile));
      await build('FROM BASE\nADD hostile /x/\n', { directory, name: 'hostile:1' }).catch((error: unknown) =>
        expect(error).toMatchObject({
          code: expect.stringMatching(/^(unsafe|unsupported|invalid_argument|not_found)$/),
        }),
      );
      expect(existsSync(canary)).toBe(false);
    }
    const bomb = gzipSync(await layerTar({ name: 'zeros', text: Buffer.alloc(64 << 20) }));
    await writeFile(join(directory, 'bomb'), bomb);
    expect(await failure(build('FROM BASE\nADD bomb /x/\n', { directory, disk_mb: 32 }))).toMatchObject({
      code: 'no_space',
    });
    expect((await bench.client.sandboxes.list()).length).toBe(0);
  });

  test('copies nothing from outside of what it was given, whatever links there are', async () => {
    const directory = await context({ 'real/file': 'real\n' });
    await symlink('/etc/shadow', join(directory, 'absolute'));
    await symlink('../../../../etc/shadow', join(directory, 'climbing'));
    await symlink('real', join(directory, 'inside'));
    await symlink('ring', join(directory, 'ring'));
    for (const path of ['absolute', 'climbing', 'ring', '../../../etc/shadow', '/etc/shadow'])
      expect(await failure(build(`FROM BASE\nCOPY ${path} /x\n`, { directory }))).toMatchObject({
        code: 'not_found',
      });
    await build('FROM BASE\nCOPY inside/file /x\n', { directory, name: 'linked:1' });
    expect(await show('linked:1', 'cat /x')).toBe('real\n');
  });

  test('is built by the command, with what it says on standard error', async () => {
    const directory = await context({
      'deploy/Dockerfile': `FROM ${base}\nARG WHO\nRUN echo "for $WHO"\nCOPY f /f\n`,
      f: 'f\n',
    });
    const words = [
      'images',
      'build',
      '-t',
      'by-command',
      '-f',
      join(directory, 'deploy/Dockerfile'),
      '--build-arg',
      'WHO=you',
      directory,
    ];
    expect(await bench.coppice(...words)).toContain('by-command:latest');
    expect(await show('by-command', 'cat /f')).toBe('f\n');
  });
});
