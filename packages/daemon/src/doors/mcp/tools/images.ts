import { posix } from 'node:path';
import {
  type BuildEvent,
  buildImageSchema,
  CoppiceError,
  guestPathSchema,
  type Image,
  imageRefSchema,
  type PullEvent,
  type PushEvent,
  prunedImagesSchema,
  pruneImagesSchema,
  snapshotRefSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import { workDirectory, workspaceId } from '../fields.ts';
import { lastEvent } from '../last-event.ts';
import { additive, defineTool, outward, readOnly, replacing, settling, type Tool } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { fileForTransfer, fromHost, hostPath, toHost } from '../transfers.ts';

const list = defineTool({
  name: 'image_list',
  title: 'List images and drivers',
  description:
    'Images that workspace_create takes as base_image, and drivers that it takes as driver, with the one that is used when none is named. Do not use it to see workspaces (workspace_list).',
  actions: ['listImages'],
  extras: ['doctor'],
  annotations: readOnly,
  input: z.strictObject({}),
  output: z.object({
    images: z.array(
      z.object({ name: z.string(), size_mb: z.number(), created_at: z.string(), used_by: z.number() }),
    ),
    default_driver: z.string().optional(),
    drivers: z
      .array(z.object({ name: z.string(), usable: z.boolean(), detail: z.string() }))
      .optional()
      .describe('For administrators.'),
  }),
  run: async (context) => {
    const { items } = await context.call('listImages', {});
    const doctor = context.may('doctor') ? await context.call('doctor', {}) : undefined;
    return {
      images: items.map((image) => ({
        name: image.name,
        size_mb: Math.round(image.size_bytes / 1_048_576),
        created_at: image.created_at,
        used_by: image.used_by.length,
      })),
      ...(doctor === undefined
        ? {}
        : {
            default_driver: doctor.driver,
            drivers: Object.entries(doctor.drivers).map(([name, driver]) => ({ name, ...driver })),
          }),
    };
  },
});

const imageName = imageRefSchema.describe('Name, digest or id of an image.');
const newName = imageRefSchema.describe('Name with a tag, as in docker: team/base:1.');

const unknownImage = { not_found: 'Call image_list for the images there are, or image_pull to get it.' };

const imageOutput = z.object({
  image: z.string(),
  digest: z.string(),
  size_mb: z.number(),
  source: z.string(),
  layers: z.number(),
  used_by: z.number(),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  user: z.string().nullable(),
  working_dir: z.string().nullable(),
  exposed_ports: z.array(z.string()),
  warnings: z.array(z.string()),
});

const viewOf = (image: Image): z.input<typeof imageOutput> => ({
  image: image.name,
  digest: image.digest,
  size_mb: Math.round(image.size_bytes / 1_048_576),
  source: image.source,
  layers: image.layers.length,
  used_by: image.used_by.length,
  entrypoint: image.settings?.entrypoint ?? [],
  cmd: image.settings?.cmd ?? [],
  env: image.settings?.env ?? {},
  user: image.settings?.user ?? null,
  working_dir: image.settings?.working_dir ?? null,
  exposed_ports: image.settings?.exposed_ports ?? [],
  warnings: image.warnings,
});

const inspect = defineTool({
  name: 'image_inspect',
  title: 'Inspect an image',
  description:
    'What an image is made of and what it says about processes: command, environment, user, directory, ports. Do not use it to look at files (create a workspace of it).',
  actions: ['getImage'],
  annotations: readOnly,
  input: z.strictObject({ image: imageName }),
  output: imageOutput,
  next: unknownImage,
  run: async (context, params) => viewOf(await context.call('getImage', { params })),
});

const pull = defineTool({
  name: 'image_pull',
  title: 'Pull an image',
  description:
    'Gets an image from its registry, or a newer one of the same name. Use it to update, or to have an image ready; not needed before workspace_create, which pulls what is not here.',
  actions: ['pullImage'],
  annotations: outward(settling),
  input: z.strictObject({ image: imageRefSchema.describe('As in docker pull: python:3.12-slim.') }),
  output: imageOutput,
  run: async (context, { image: name }) => {
    const { image } = await context.during(`pulling ${name}`, () =>
      lastEvent<PullEvent, 'image'>(context.call('pullImage', { body: { name } }), 'image', () => {}),
    );
    return viewOf(image);
  },
});

const mostShownCharacters = 4_000;

const build = defineTool({
  name: 'image_build',
  title: 'Build an image from a Dockerfile',
  description:
    'Builds an image from a Dockerfile and files of a workspace. Steps that an earlier build did are not done again. Do not use it to keep what you set up by hand (image_commit).',
  actions: ['buildImage', 'sendBuildContext', 'downloadArchive', 'readFile'],
  annotations: outward(settling),
  input: z.strictObject({
    name: newName,
    workspace_id: workspaceId.describe('The workspace whose files are copied.'),
    path: guestPathSchema.default(workDirectory).describe('Directory to build from.'),
    dockerfile: guestPathSchema
      .default('Dockerfile')
      .describe('Path of the Dockerfile; relative to that directory.'),
    build_args: buildImageSchema.shape.args.describe('Values for ARG.'),
    target: buildImageSchema.shape.target.describe('Last stage to build.'),
    allow_internet: z.boolean().default(false).describe('For RUN; off by default.'),
    no_cache: z.boolean().default(false).describe('Do every step again.'),
  }),
  output: imageOutput.extend({ steps: z.number(), cached_steps: z.number() }),
  next: { build_failed: 'Read the output, correct the Dockerfile or a file, and build again.' },
  run: async (context, input) => {
    const { name, path, build_args: args, target, no_cache } = input;
    const sandbox = await context.own(input.workspace_id);
    const directory = posix.resolve(workDirectory, path);
    const dockerfile = await readText(context, sandbox, posix.resolve(directory, input.dockerfile));
    const archive = await context.call('downloadArchive', {
      params: { sandbox },
      query: { path: directory },
    });
    const { id: files } = await context.call('sendBuildContext', {}, { upload: archive.bytes });
    const network = input.allow_internet ? 'internet' : 'none';
    const body = { name, dockerfile, context: files, args, target, network, no_cache } as const;
    let output = '';
    const steps = { all: 0, cached: 0 };
    const onEvent = (event: Exclude<BuildEvent, { type: 'image' }>): void => {
      if (event.type === 'output') output = (output + event.text).slice(-mostShownCharacters);
      if (event.type !== 'step') return;
      steps.all = event.steps;
      if (event.state === 'cached') steps.cached += 1;
      if (event.state === 'running') context.report(event.text, event.step / event.steps);
    };
    const { image } = await context.during(`building ${name}`, () =>
      lastEvent<BuildEvent, 'image'>(context.call('buildImage', { body }), 'image', onEvent).catch(
        (error: unknown) => {
          throw withOutput(error, output);
        },
      ),
    );
    return { ...viewOf(image), steps: steps.all, cached_steps: steps.cached };
  },
});

async function readText(context: ToolContext, sandbox: string, path: string): Promise<string> {
  const { bytes } = await context.call('readFile', { params: { sandbox }, query: { path } });
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of bytes) {
    length += chunk.length;
    if (length > 1_048_576)
      throw new CoppiceError('too_large', `${path} is no Dockerfile: it has more than 1 MiB`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** A model cannot look at a terminal: what the failing step said is part of the answer. */
const withOutput = (error: unknown, output: string): unknown =>
  error instanceof CoppiceError && error.code === 'build_failed' && output !== ''
    ? new CoppiceError(error.code, `${error.message}. Its output ends with:\n${output}`, {
        ...(error.details === undefined ? {} : { details: error.details }),
        cause: error,
      })
    : error;

const commit = defineTool({
  name: 'image_commit',
  title: 'Make an image of a workspace',
  description:
    'Makes an image of the files of a workspace, or of a snapshot of it, that other tools run too. Variables and memory are not in it. Do not use it to save a state to come back to (snapshot_create).',
  actions: ['commitImage'],
  annotations: additive,
  input: z.strictObject({
    workspace_id: workspaceId,
    snapshot_name: snapshotRefSchema
      .optional()
      .describe('A snapshot of it; the files as they are now by default.'),
    name: newName,
    comment: z.string().max(1000).optional().describe('Goes into the history of the image.'),
  }),
  output: imageOutput,
  run: async (context, { workspace_id: ref, snapshot_name: snapshot, name, comment }) => {
    const sandbox = await context.ownSandbox(ref);
    const from = snapshot === undefined ? sandbox.id : (await context.usableSnapshot(snapshot, sandbox)).id;
    const body = { from, name, ...(comment === undefined ? {} : { comment }) };
    return viewOf(await context.during(`making ${name}`, () => context.call('commitImage', { body })));
  },
});

const push = defineTool({
  name: 'image_push',
  title: 'Push an image',
  description:
    'Sends an image to a registry; only layers that are missing there are sent. Do not use it for a registry that asks for a password nobody gave: the owner of the machine logs in (coppice images login).',
  actions: ['pushImage'],
  annotations: outward(settling),
  input: z.strictObject({
    image: imageName,
    to: imageRefSchema.optional().describe('Where to, as in docker push; its own name by default.'),
  }),
  output: z.object({ name: z.string(), digest: z.string(), uploaded_bytes: z.number() }),
  run: async (context, { image, to }) => {
    const { name, digest, uploaded_bytes } = await context.during(`pushing ${image}`, () =>
      lastEvent<PushEvent, 'pushed'>(
        context.call('pushImage', { params: { image }, body: to === undefined ? {} : { to } }),
        'pushed',
        () => {},
      ),
    );
    return { name, digest, uploaded_bytes };
  },
});

const remove = defineTool({
  name: 'image_remove',
  title: 'Remove an image',
  description:
    'Removes an image that no workspace and no snapshot is made from; layers that other images have stay. Do not use it to clean up in general (image_prune).',
  actions: ['removeImage'],
  annotations: replacing,
  input: z.strictObject({ image: imageName }),
  output: z.object({ image: z.string(), status: z.literal('removed') }),
  next: { not_found: 'Call image_list for the images there are.' },
  run: async (context, params) => {
    await context.call('removeImage', { params });
    return { image: params.image, status: 'removed' as const };
  },
});

const prune = defineTool({
  name: 'image_prune',
  title: 'Remove unused images',
  description:
    'Removes images whose name went to a newer one, and layers, where nothing uses them. Do not use it to remove one image (image_remove).',
  actions: ['pruneImages'],
  annotations: replacing,
  input: z.strictObject({
    all: pruneImagesSchema.shape.all.describe('Also images that still have their name.'),
    builds: pruneImagesSchema.shape.builds.describe('Also the cached steps of builds.'),
  }),
  output: prunedImagesSchema.extend({ removed: z.array(z.string()) }),
  run: async (context, body) => {
    const { removed, ...pruned } = await context.during('removing', () =>
      context.call('pruneImages', { body }),
    );
    return { ...pruned, removed: removed.map(({ name }) => name) };
  },
});

const exportImage = defineTool({
  name: 'image_export',
  title: 'Save an image to a host file',
  description:
    'Writes an image as one tar, for docker, podman and OCI tools, into the transfer directory of the host; a file that is there is replaced. Host paths elsewhere, and symbolic links, are refused. Do not use it to send an image to a registry (image_push).',
  actions: ['transferFiles', 'exportImage'],
  annotations: replacing,
  input: z.strictObject({ image: imageName, host_path: hostPath }),
  output: z.object({ image: z.string(), host_path: z.string(), bytes: z.number() }),
  next: unknownImage,
  run: async (context, { image, host_path }) => {
    const archive = await context.call('exportImage', { params: { image } });
    const { bytes } = await context.during(`exporting ${image}`, () =>
      toHost(context, host_path, archive.bytes),
    );
    return { image, host_path, bytes };
  },
});

const importImage = defineTool({
  name: 'image_import',
  title: 'Make an image of a host file',
  description:
    'Makes an image of an archive in the transfer directory of the host: of docker save, of OCI tools, or of a root filesystem (tar, plain or packed with gzip or zstd). Host paths elsewhere, and symbolic links, are refused. Do not use it for an image of a registry (image_pull).',
  actions: ['transferFiles', 'importImage'],
  annotations: additive,
  input: z.strictObject({
    host_path: hostPath,
    name: newName
      .optional()
      .describe('Name with a tag. Default: the one in the archive; a root filesystem has none.'),
  }),
  output: imageOutput,
  next: { not_found: `${fileForTransfer}.` },
  run: async (context, { host_path, name }) => {
    const query = name === undefined ? {} : { name };
    const image = await context.during(`importing ${host_path}`, () =>
      fromHost(context, host_path, (upload) => context.call('importImage', { query }, { upload })),
    );
    return viewOf(image);
  },
});

export const imageTools: readonly Tool[] = [
  list,
  inspect,
  pull,
  build,
  commit,
  push,
  remove,
  prune,
  exportImage,
  importImage,
];
