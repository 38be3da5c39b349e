import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  type LayerEntry,
  layerTar,
  type RunningDaemon,
  registryRefusal,
  skopeoCopy,
  TestRegistry,
  tinyImage,
  writeOciLayout,
} from '@coppice/testkit';
import type { BenchContext } from '../harness/bench-context.ts';
import { defineRow, medianRatio, NotMeasured } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';
import { outputCommand } from './first-output.ts';

const run = promisify(execFile);

const tinyTar = async (): Promise<Buffer> => {
  const args = ['-C', await tinyImage(), '--numeric-owner', '-cf', '-', '.'];
  return (await run('tar', args, { encoding: 'buffer', maxBuffer: 1 << 28 })).stdout;
};

/** A registry on the loopback, as close to the peers as to us. */
const startRegistry = async (context: BenchContext): Promise<TestRegistry> => {
  const refusal = registryRefusal();
  if (refusal !== undefined) throw new NotMeasured(refusal);
  const registry = await TestRegistry.start();
  context.atEnd(() => registry[Symbol.asyncDispose]());
  return registry;
};

const put = async (
  context: BenchContext,
  registry: TestRegistry,
  name: string,
  layers: readonly Buffer[],
): Promise<string> => {
  const layout = join(context.directory, name);
  await writeOciLayout(layout, 'x', { layers });
  await skopeoCopy(`oci:${layout}:x`, `docker://${registry.host}/${name}:1`);
  await rm(layout, { recursive: true, force: true });
  return `${registry.host}/${name}:1`;
};

/** Files of which half can be packed and half cannot. */
const filesOf = (directory: string, count: number, bytes: number): LayerEntry[] =>
  Array.from({ length: count }, (_, index) => ({
    name: `${directory}/${index % 100}/${index}`,
    text: Buffer.concat([randomBytes(bytes / 2), Buffer.alloc(bytes / 2, 'text ')]),
  }));

/** As packages are: each has directories of its own, and adds to a few that all have. */
const installedPackages = (count: number, files: number): LayerEntry[][] =>
  Array.from({ length: count }, (_, layer) =>
    Array.from({ length: Math.ceil(files / count) }, (_none, index) => ({
      name:
        index % 20 === 0
          ? `walked/shared/${index % 3}/${layer}-${index}`
          : `walked/${layer}/${index % 5}/${index}`,
      text: randomBytes(64),
    })),
  );

/** The worst that layers can be: each has a part of every directory, so that the kernel merges each directory from all of them. */
const scattered = (count: number, files: number): LayerEntry[][] =>
  Array.from({ length: count }, (_, layer) =>
    Array.from({ length: Math.ceil(files / count) }, (_none, index) => ({
      name: `walked/${index % 100}/${layer}-${index}`,
      text: randomBytes(64),
    })),
  );

/** The same files in as many layers as there are parts, and in one, both above a root with a shell. */
const putBoth = async (
  context: BenchContext,
  registry: TestRegistry,
  parts: readonly LayerEntry[][],
): Promise<{ many: string; one: string }> => {
  const shell = await tinyTar();
  const many = await put(context, registry, 'many', [
    shell,
    ...(await Promise.all(parts.map((part) => layerTar(...part)))),
  ]);
  const one = await put(context, registry, 'one', [
    Buffer.concat([shell.subarray(0, tarEnd(shell)), await layerTar(...parts.flat())]),
  ]);
  return { many, one };
};

const walk = ['/bin/find', '/walked', '-printf', '%s'];

const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
};

export const pull = defineRow({
  name: 'pull',
  title: 'pull and unpack an image of 3 layers, 10,000 files, 400 MB',
  targets: { 'skopeo + umoci': atMost(0.6), buildah: atMost(0.6) },
  run: async (context) => {
    const registry = await startRegistry(context);
    const daemon = await context.daemon();
    const share = context.amount(1, 0.02);
    const layers = [
      await layerTar(...filesOf('many', 9_000 * share, 4_096)),
      await layerTar(...filesOf('large', 500 * share, 364_000)),
      await layerTar(...filesOf('more', 500 * share, 364_000)),
    ];
    const name = await put(context, registry, 'pulled', layers);
    const measured = await context.interleave(
      {
        ours: async () => {
          const tookMs = await timed(() => daemon.client.images.pull(name));
          await daemon.client.images.remove(name);
          return tookMs;
        },
        skopeo: () => withSkopeo(context, name),
        buildah: () => withBuildah(context, name),
      },
      { rounds: 3, budgetS: 120 },
    );
    return {
      'skopeo + umoci': medianRatio(measured.ours, measured.skopeo),
      buildah: medianRatio(measured.ours, measured.buildah),
    };
  },
});

const withSkopeo = async (context: BenchContext, name: string): Promise<number> => {
  const [layout, bundle] = ['layout', 'bundle'].map((part) => join(context.directory, `skopeo-${part}`));
  const tookMs = await timed(async () => {
    await skopeoCopy(`docker://${name}`, `oci:${layout}:x`);
    await run('umoci', ['unpack', '--image', `${layout}:x`, bundle!]);
  });
  for (const path of [layout!, bundle!]) await rm(path, { recursive: true, force: true });
  return tookMs;
};

/** With a store of its own, so that the machine's images are not touched. */
const withBuildah = async (context: BenchContext, name: string): Promise<number> => {
  const root = join(context.directory, 'buildah');
  const buildah = [
    '--root',
    join(root, 'root'),
    '--runroot',
    join(root, 'run'),
    '--storage-driver',
    'overlay',
  ];
  try {
    return await timed(() => run('buildah', [...buildah, 'pull', '--quiet', '--tls-verify=false', name]));
  } catch (error) {
    throw new NotMeasured(`buildah pulls nothing here: ${String((error as Error).message).slice(-200)}`);
  } finally {
    await run('buildah', [...buildah, 'rmi', '--all', '--force']).catch(() => {});
    await run('umount', ['--lazy', '--quiet', join(root, 'root/overlay')]).catch(() => {});
    await rm(root, { recursive: true, force: true });
  }
};

const inSandbox = async (
  daemon: RunningDaemon,
  image: string,
  command: readonly string[],
  count: 'from create' | 'command alone',
): Promise<number> => {
  const startedMs = performance.now();
  const sandbox = await daemon.client.sandboxes.create({ image });
  const createdMs = performance.now();
  const { exit_code: code } = await sandbox.exec([...command], { max_output_bytes: 1 << 24 });
  const tookMs = performance.now() - (count === 'from create' ? startedMs : createdMs);
  if (code !== 0) throw new Error(`${command.join(' ')} ended with ${code}`);
  await sandbox.destroy();
  return tookMs;
};

export const imageLayers = defineRow({
  name: 'image-layers',
  title: 'create → first output from a pulled image; a walk of 10,000 files in 43 layers',
  targets: { 'an image of one directory': atMost(1.2), 'one layer': atMost(1.3) },
  run: async (context) => {
    const registry = await startRegistry(context);
    const daemon = await context.daemon();
    const parts = installedPackages(42, context.amount(10_000, 420));
    const { many, one } = await putBoth(context, registry, parts);
    for (const name of [many, one]) await daemon.client.images.pull(name);
    const measured = await context.interleave(
      {
        pulled: () => inSandbox(daemon, one, outputCommand, 'from create'),
        directory: () => inSandbox(daemon, 'tiny', outputCommand, 'from create'),
        walkMany: () => inSandbox(daemon, many, walk, 'command alone'),
        walkOne: () => inSandbox(daemon, one, walk, 'command alone'),
      },
      { rounds: 50, budgetS: 40 },
    );
    return {
      'an image of one directory': medianRatio(measured.pulled, measured.directory),
      'one layer': medianRatio(measured.walkMany, measured.walkOne),
    };
  },
});

export const imageScattered = defineRow({
  name: 'image-scattered',
  title: 'a walk of 10,000 files in 43 layers, where every layer has a part of every directory',
  targets: { 'one layer': atMost(1.3) },
  run: async (context) => {
    const registry = await startRegistry(context);
    const daemon = await context.daemon();
    const parts = scattered(42, context.amount(10_000, 420));
    const { many, one } = await putBoth(context, registry, parts);
    for (const name of [many, one]) await daemon.client.images.pull(name);
    const measured = await context.interleave(
      {
        many: () => inSandbox(daemon, many, walk, 'command alone'),
        one: () => inSandbox(daemon, one, walk, 'command alone'),
      },
      { rounds: 30, budgetS: 30 },
    );
    return { 'one layer': medianRatio(measured.many, measured.one) };
  },
});

/** Where the zeros begin that close it. */
const tarEnd = (tar: Buffer): number => {
  let end = tar.length;
  while (end >= 512 && tar.subarray(end - 512, end).every((byte) => byte === 0)) end -= 512;
  return end;
};
