import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { formatAge, formatBytes } from '@coppice/console';
import type { Image } from '@coppice/protocol';
import { Option } from 'commander';
import { collect, collectEnv } from '../args/key-value.ts';
import { parseNumber } from '../args/number.ts';
import { parseMegabytes } from '../args/size.ts';
import type { Cli } from '../cli.ts';
import { type BuildFlags, buildImage } from '../image-build.ts';
import { LayerSums, pullImage } from '../image-pull.ts';
import { readPassword } from '../read-password.ts';
import { counted, openSource, writeWhole } from '../transfer.ts';
import { type DefineCommand, examples, verb } from '../verb.ts';

const listImages = async (cli: Cli): Promise<void> => {
  const images = await cli.coppice.images.list({ signal: cli.signal });
  const rows = images.map((image) => [
    image.name,
    image.source,
    formatBytes(image.size_bytes),
    String(image.used_by.length),
    formatAge(image.created_at, Date.now()),
  ]);
  cli.out.result(images, () =>
    cli.out.table(
      ['NAME', 'SOURCE', 'SIZE', 'USED BY', 'MADE'],
      rows,
      'No images yet: `host` is made when it is first used.',
    ),
  );
};

/** A directory is read by the daemon; an archive is sent to it. */
const importImage = async (cli: Cli, path: string, name: string | undefined): Promise<Image> => {
  const { signal } = cli;
  if (path !== '-' && (await stat(path).catch(() => undefined))?.isDirectory())
    return cli.out.during(`importing ${path}`, () =>
      cli.coppice.images.make({ name, source: resolve(path), signal }),
    );
  const { stream, sizeBytes } = await openSource(
    cli,
    path,
    'Name a directory, an archive, or - for standard input.',
  );
  const size = sizeBytes === undefined ? {} : { size_bytes: sizeBytes };
  return cli.out.during(`importing ${path}`, (progress) => {
    const archive = counted(stream, (done) =>
      progress.update({ done, ...(sizeBytes === undefined ? {} : { total: sizeBytes }) }),
    );
    return cli.coppice.images.import(name, archive, { ...size, signal });
  });
};

const exportImage = async (cli: Cli, ref: string, output: string | undefined): Promise<void> => {
  const image = await cli.coppice.images.get(ref, { signal: cli.signal });
  const file = output ?? `${image.name.replace(/[^A-Za-z0-9.-]+/g, '-')}.tar`;
  const bytes = await cli.out.during(`exporting ${image.name}`, async (progress) => {
    let written = 0;
    const content = counted(cli.coppice.images.export(image.id, { signal: cli.signal }), (done) => {
      written = done;
      progress.update({ done });
    });
    if (file === '-') await pipeline(content, cli.io.stdout, { end: false });
    else await writeWhole(file, content);
    return written;
  });
  if (file !== '-')
    cli.out.result({ file, bytes, image_id: image.id }, () => `wrote ${file}, ${formatBytes(bytes)}`);
};

const pushImage = (cli: Cli, ref: string, to: string | undefined) =>
  cli.out.during(`pushing ${to ?? ref}`, (progress) => {
    const sent = new LayerSums();
    return cli.coppice.images.push(ref, {
      ...(to === undefined ? {} : { to }),
      signal: cli.signal,
      onLayer: (layer) => progress.update(sent.add(layer, ['present', 'mounted', 'done'])),
    });
  });

/** What people call the sandboxes and snapshots with these ids. */
const namesOf = async (cli: Cli, ids: readonly string[]): Promise<string[]> => {
  if (ids.length === 0) return [];
  const { signal } = cli;
  const names = new Map<string, string>();
  for (const { id, name } of await cli.coppice.sandboxes.list({ signal })) names.set(id, name);
  for (const snapshot of await cli.coppice.snapshots.list({ signal }))
    names.set(snapshot.id, `${snapshot.sandbox_name}:${snapshot.name}`);
  return ids.map((id) => names.get(id) ?? id);
};

const settingsFacts = (settings: Image['settings']): (readonly [string, string])[] => {
  if (settings === null) return [];
  const {
    entrypoint,
    cmd,
    user,
    working_dir: cwd,
    env,
    exposed_ports: ports,
    labels,
    stop_signal: stop,
  } = settings;
  const known: (readonly [string, string])[] = [
    ['starts', [...entrypoint, ...cmd].map(quoted).join(' ')],
    ['user', user ?? ''],
    ['directory', cwd ?? ''],
    ['ports', ports.join(', ')],
    ['stop signal', stop ?? ''],
    [
      'environment',
      Object.entries(env)
        .map(([name, value]) => `${name}=${value}`)
        .join('\n'),
    ],
    [
      'labels',
      Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join('\n'),
    ],
  ];
  return known.filter(([, value]) => value !== '');
};

const quoted = (word: string): string => (/^[\w./:=@%+-]+$/.test(word) ? word : JSON.stringify(word));

const made = (image: Image): string => `${image.name}  ${formatBytes(image.size_bytes)}  ${image.id}`;

export const define: DefineCommand = (program, cli) => {
  const images = verb(program, 'images', 'List, pull, build and remove images').action(() => listImages(cli));
  verb(images, 'ls', 'List images').action(() => listImages(cli));
  verb(images, 'pull', 'Pull images from a registry, or update them')
    .argument('<name...>', 'as in docker pull: python:3.12-slim, ghcr.io/org/app@sha256:…')
    .addHelpText('after', examples('coppice images pull python:3.12-slim'))
    .action(async (names: string[]) => {
      const pulled: Image[] = [];
      for (const name of names) pulled.push(await pullImage(cli, name));
      cli.out.result(pulled, () => pulled.map(made).join('\n'));
    });
  verb(images, 'import', 'Create an image from a directory or an archive')
    .argument('<path>', 'directory or archive of this machine, - for standard input')
    .argument('[name]', 'name of the image (default: the one in an archive of docker save or of OCI tools)')
    .addHelpText(
      'after',
      examples(
        'docker save app:1 | coppice images import -',
        'coppice images import rootfs.tar.zst mine',
        'coppice images import ./rootfs mine',
      ),
    )
    .action(async (path: string, name: string | undefined) => {
      const image = await importImage(cli, path, name);
      cli.out.result(image, () => made(image));
    });
  verb(images, 'export', 'Export an image as a tar for docker, podman and OCI tools')
    .argument('<image>', 'name or id')
    .option('-o, --output <file>', 'where to, - for standard output (default: <name>.tar)')
    .addHelpText('after', examples('coppice images export team/base:1 -o - | docker load'))
    .action((ref: string, { output }: { output?: string }) => exportImage(cli, ref, output));
  verb(images, 'commit', 'Create an image from a snapshot, or from a sandbox as it is now')
    .argument('<snapshot>', 'id, sandbox:snapshot, or a sandbox')
    .argument('<name>', 'name of the image, with a tag')
    .option('-m, --message <text>', 'what was changed, for the history of the image')
    .addHelpText('after', examples('coppice images commit dev:baseline team/base:1'))
    .action(async (from: string, name: string, { message }: { message?: string }) => {
      const comment = message === undefined ? {} : { comment: message };
      const image = await cli.out.during(`packing ${from}`, () =>
        cli.coppice.images.commit({ from, name, ...comment, signal: cli.signal }),
      );
      cli.out.result(image, () => made(image));
    });
  verb(images, 'push', 'Push an image to a registry')
    .argument('<image>', 'name or id')
    .argument('[target]', 'where to, as in docker push (default: its own name)')
    .addHelpText('after', examples('coppice images push team/base:1 ghcr.io/team/base:1'))
    .action(async (ref: string, target: string | undefined) => {
      const { type: _, ...pushed } = await pushImage(cli, ref, target);
      cli.out.result(
        pushed,
        () => `${pushed.name}@${pushed.digest}  ${formatBytes(pushed.uploaded_bytes)} sent`,
      );
    });
  verb(images, 'build', 'Build an image from a Dockerfile, from this machine or from a Debian suite')
    .argument('<source>', 'directory whose files the Dockerfile copies; or host, or debian:<suite>')
    .argument('[name]', 'the same as --tag')
    .option('-f, --file <path>', 'the Dockerfile (default: Dockerfile in the directory)')
    .option('-t, --tag <name>', 'name of the image, with a tag')
    .option('--build-arg <key=value>', 'value of an ARG (repeatable)', collectEnv(cli.io.env))
    .option('--secret <spec>', 'id=NAME,src=FILE or id=NAME,env=VARIABLE (repeatable)', collect)
    .option('--target <stage>', 'stop after this stage')
    .addOption(
      new Option('--network <network>', 'what RUN reaches (default: none)').choices(['none', 'internet']),
    )
    .option('--no-cache', 'do every step again')
    .option('--cpus <number>', 'processors that a step may use', parseNumber)
    .option('-m, --memory <size>', 'memory of a step, such as 2g', parseMegabytes)
    .option('--disk <size>', 'disk of a step, such as 20g', parseMegabytes)
    .addHelpText(
      'after',
      examples(
        'coppice images build -t team/app:1 --network internet .',
        'coppice images build -t app -f deploy/Dockerfile --secret id=npm,src=.npmrc .',
        'coppice images build debian:bookworm',
      ),
    )
    .action(async (source: string, name: string | undefined, flags: BuildFlags) => {
      const isOwn = source === 'host' || /^debian:[a-z]{2,20}$/.test(source);
      const image = isOwn
        ? await cli.out.during(`building ${source}`, () =>
            cli.coppice.images.make({ source, name, signal: cli.signal }),
          )
        : await buildImage(cli, source, name === undefined ? flags : { tag: name, ...flags });
      cli.out.result(image, () => made(image));
    });
  verb(images, 'refresh', 'Rebuild host or debian:<suite>; existing sandboxes keep their image')
    .argument('[source]', 'host, or debian:<suite>', 'host')
    .action(async (source: string) => {
      const before = (await cli.coppice.images.list({ signal: cli.signal })).find(
        ({ name }) => name === source,
      );
      const image = await cli.out.during(`making ${source}`, () =>
        cli.coppice.images.make({ source, refresh: true, signal: cli.signal }),
      );
      const kept = before !== undefined && before.id === image.id ? '  nothing changed' : '';
      cli.out.result(image, () => `${made(image)}${kept}`);
    });
  verb(images, 'inspect', 'Show everything about an image')
    .argument('<image>', 'name or id')
    .action(async (ref: string) => {
      const image = await cli.coppice.images.get(ref, { signal: cli.signal });
      const users = cli.out.isJson ? [] : await namesOf(cli, image.used_by);
      cli.out.result(image, () =>
        cli.out.facts([
          ['name', image.name],
          ['id', image.id],
          ['source', image.source],
          ['size', formatBytes(image.size_bytes)],
          ['digest', image.digest],
          ...(image.registry_digest === null ? [] : [['in the registry', image.registry_digest] as const]),
          ...(image.layers.length === 0 ? [] : [['layers', String(image.layers.length)] as const]),
          ...settingsFacts(image.settings),
          ['made', image.created_at],
          ['used by', users.join(', ') || 'nothing'],
        ]),
      );
    });
  verb(images, 'prune', 'Remove images and layers that nothing uses')
    .option('-a, --all', 'every image that nothing uses, not only those that a newer one took the name of')
    .option('--builds', 'also the snapshots that builds left for the next ones')
    .action(async (options: { all?: boolean; builds?: boolean }) => {
      const pruned = await cli.coppice.images.prune({ ...options, signal: cli.signal });
      const { removed, build_snapshots: snapshots, freed_bytes: freed } = pruned;
      cli.out.result(pruned, () =>
        [
          ...removed.map(({ name }) => `removed ${name}`),
          ...(snapshots === 0 ? [] : [`deleted ${snapshots} snapshots of builds`]),
          `freed ${formatBytes(freed)}`,
        ].join('\n'),
      );
    });
  verb(images, 'login', 'Log in to a registry, for pulling and pushing')
    .argument('<registry>', 'its host: docker.io, ghcr.io, localhost:5000')
    .requiredOption('-u, --username <name>', 'who you are there')
    .option('--password-stdin', 'read the password, or a token, from standard input')
    .addHelpText('after', examples('coppice images login ghcr.io -u me --password-stdin < token'))
    .action(async (registry: string, options: { username: string; passwordStdin?: boolean }) => {
      const password = await readPassword(cli, registry, options.passwordStdin ?? false);
      const { signal } = cli;
      const login = await cli.coppice.images.login({
        registry,
        username: options.username,
        password,
        signal,
      });
      cli.out.result(login, () => `logged in to ${login.registry} as ${login.username}`);
    });
  verb(images, 'logout', 'Log out of a registry')
    .argument('<registry>', 'its host')
    .action(async (registry: string) => {
      await cli.coppice.images.logout(registry, { signal: cli.signal });
      cli.out.result({ registry }, () => `logged out of ${registry}`);
    });
  verb(images, 'logins', 'List the registries with a stored login').action(async () => {
    const logins = await cli.coppice.images.logins({ signal: cli.signal });
    const rows = logins.map(({ registry, username }) => [registry, username]);
    cli.out.result(logins, () => cli.out.table(['REGISTRY', 'USER'], rows, 'No logins.'));
  });
  verb(images, 'rm', 'Remove images that nothing uses')
    .argument('<image...>', 'names or ids')
    .action(async (refs: string[]) => {
      for (const ref of refs) await cli.coppice.images.remove(ref, { signal: cli.signal });
      cli.out.result({ removed: refs }, () => refs.map((ref) => `removed ${ref}`).join('\n'));
    });
};
