import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type BuildEvent,
  type buildContextSchema,
  type buildImageSchema,
  CoppiceError,
  type Image,
} from '@coppice/protocol';
import { type ConfigSection, machinePlatform } from '@coppice/runtime';
import type { z } from 'zod';
import type { ImageService } from '../images/image-service.ts';
import type { BuildOptions } from '../services.ts';
import type { TreeAccess } from '../trees/tree-access.ts';
import { type BenchServices, BuildBench, buildLabel, cacheTag, failedTag } from './build-bench.ts';
import { BuildContext } from './build-context.ts';
import { parseDockerfile, unsupportedLine } from './dockerfile/parse-dockerfile.ts';
import { findStage, readStages, type Stage, type Stages } from './dockerfile/read-stages.ts';
import { StageBuilder } from './stage-builder.ts';
import { keyOf, type Position, type StageState } from './stage-state.ts';

type BuildInput = z.output<typeof buildImageSchema>;

export interface BuildServiceParts {
  readonly services: BenchServices;
  readonly images: ImageService;
  readonly trees: TreeAccess;
  readonly directory: string;
  readonly now: () => number;
}

const contextLifeMs = 3_600_000;
const mostContexts = 32;
const defaultShell = ['/bin/sh', '-c'];

/** Builds images from Dockerfiles, each step in a sandbox, with a snapshot after each that changes files. */
export class BuildService {
  readonly #parts: BuildServiceParts;
  #swept: Promise<void> | undefined;
  readonly #contexts = new Map<string, { context: BuildContext; file: string; atMs: number }>();

  constructor(parts: BuildServiceParts) {
    this.#parts = parts;
    mkdirSync(this.#contextsDir, { recursive: true, mode: 0o700 });
    mkdirSync(this.#cacheDir, { recursive: true, mode: 0o700 });
    // What an earlier daemon was sent is of no use any more.
    for (const name of readdirSync(this.#contextsDir)) rmSync(join(this.#contextsDir, name), { force: true });
  }

  /** Destroys the sandboxes of builds that an earlier daemon did not end. */
  async #sweep(): Promise<void> {
    const { services } = this.#parts;
    for (const { id, labels } of await services.sandboxes.list({}))
      if (labels[buildLabel] !== undefined) await services.sandboxes.destroy(id).catch(() => {});
  }

  /** The files that a build may copy; they are kept until it ends, or for an hour. */
  async receive(tar: AsyncIterable<Uint8Array>): Promise<z.output<typeof buildContextSchema>> {
    await this.#forgetOld();
    if (this.#contexts.size >= mostContexts)
      throw new CoppiceError('limit_reached', 'too many builds have sent their files and not begun');
    const id = randomBytes(16).toString('hex');
    const file = join(this.#contextsDir, id);
    try {
      const context = await BuildContext.receive(tar, file);
      this.#contexts.set(id, { context, file, atMs: this.#parts.now() });
      return { id };
    } catch (error) {
      await rm(file, { force: true });
      if (error instanceof CoppiceError || 'syscall' in (error as object)) throw error;
      throw new CoppiceError(
        'invalid_argument',
        `the files to build from are no whole tar: ${(error as Error).message}`,
        {
          cause: error,
        },
      );
    }
  }

  async build(input: BuildInput, { signal, onEvent = () => {} }: BuildOptions = {}): Promise<Image> {
    await this.#sweepOnce();
    const context = input.context === undefined ? undefined : this.#takeContext(input.context);
    const bench = new BuildBench({
      ...input,
      services: this.#parts.services,
      buildId: randomBytes(4).toString('hex'),
      internet: input.network === 'internet',
    });
    try {
      return await this.#build(input, context?.context, bench, onEvent, signal);
    } finally {
      await bench.closeAll();
      if (context !== undefined) await rm(context.file, { force: true });
    }
  }

  /** Deletes what builds left for the next ones, and of steps that failed. */
  async prune(): Promise<number> {
    const { snapshots } = this.#parts.services;
    let count = 0;
    for (const { id, tags } of await snapshots.list()) {
      if (!tags.includes(cacheTag) && !tags.includes(failedTag)) continue;
      await snapshots.delete(id).then(
        () => {
          count += 1;
        },
        (error: unknown) => {
          if (!(error instanceof CoppiceError && error.code === 'in_use')) throw error;
        },
      );
    }
    for (const name of readdirSync(this.#cacheDir)) await rm(join(this.#cacheDir, name), { force: true });
    return count;
  }

  #sweepOnce(): Promise<void> {
    this.#swept ??= this.#sweep();
    return this.#swept;
  }

  async #build(
    input: BuildInput,
    context: BuildContext | undefined,
    bench: BuildBench,
    emit: (event: BuildEvent) => void,
    signal: AbortSignal | undefined,
  ): Promise<Image> {
    const platform = platformArgs();
    const stages = readStages(parseDockerfile(input.dockerfile), input, platform);
    const cache = await this.#cache(input.no_cache);
    const states = new Map<Stage, StageState>();
    const total = stages.needed.reduce((sum, { instructions }) => sum + instructions.length, 0);
    const step = { now: 0, total };
    const createdAt = new Date(this.#parts.now()).toISOString();
    for (const stage of stages.needed) {
      const state = await this.#begin(stage, stages, states, signal);
      states.set(stage, state);
      await new StageBuilder(stage, state, {
        bench,
        context,
        escapeWith: stages.escapeWith,
        args: input.args,
        globals: stages.globals,
        platform,
        secrets: input.secrets,
        cacheDir: this.#cacheDir,
        cached: (key) => cache.get(key),
        positionOf: (from) => this.#positionOf(from, stage, stages, states, signal),
        emit,
        step,
        internet: input.network === 'internet',
        signal,
        createdAt,
      }).run();
    }
    warnOfUnused(input, stages, emit);
    return this.#finish(input, states.get(stages.needed.at(-1)!)!, createdAt, signal);
  }

  async #begin(
    stage: Stage,
    stages: Stages,
    states: ReadonlyMap<Stage, StageState>,
    signal: AbortSignal | undefined,
  ): Promise<StageState> {
    const before = stages.all.slice(0, stage.index);
    const parent = before.findLast(({ name }) => name === stage.base.toLowerCase());
    const known = parent === undefined ? undefined : states.get(parent);
    if (known !== undefined)
      return {
        position: known.position,
        config: structuredClone(known.config),
        shell: [...known.shell],
        history: [...known.history],
        args: {},
        ownCmd: false,
      };
    const { position, config } = await this.#image(stage.base, signal);
    if ((config.OnBuild ?? []).length > 0)
      throw unsupportedLine(stage.from.line, `ONBUILD, which the image ${stage.base} has`);
    return {
      position,
      config,
      shell: [...(config.Shell ?? defaultShell)],
      history: [],
      args: {},
      ownCmd: false,
    };
  }

  async #image(
    name: string,
    signal: AbortSignal | undefined,
  ): Promise<{ position: Position; config: ConfigSection }> {
    const { images } = this.#parts;
    const options = signal === undefined ? {} : { signal };
    const image = name === 'scratch' ? await images.scratch() : await images.ensure(name, options);
    const position = {
      imageId: image.id,
      imageName: image.name,
      snapshotId: undefined,
      key: keyOf('image', image.digest),
    };
    return { position, config: await images.config(image.id) };
  }

  /** An earlier stage by name or number, or else an image. */
  async #positionOf(
    from: string,
    stage: Stage,
    stages: Stages,
    states: ReadonlyMap<Stage, StageState>,
    signal: AbortSignal | undefined,
  ): Promise<Position> {
    const found = findStage(stages.all.slice(0, stage.index), from);
    const state = found === undefined ? undefined : states.get(found);
    return state?.position ?? (await this.#image(from, signal)).position;
  }

  async #finish(
    { name }: BuildInput,
    { position, config, history }: StageState,
    createdAt: string,
    signal: AbortSignal | undefined,
  ): Promise<Image> {
    const { images, trees } = this.#parts;
    const last = history.findLastIndex(({ changesFiles }) => changesFiles);
    const entries = history.map(({ created, created_by }, index) => ({
      created,
      created_by,
      ...(index === last && position.snapshotId !== undefined ? {} : { empty_layer: true }),
    }));
    const key = keyOf(
      position.snapshotId ?? position.key,
      config,
      history.map(({ created_by }) => created_by),
    );
    const input = {
      name,
      baseId: position.imageId,
      createdAt,
      source: { kind: 'build', key } as const,
      history: entries,
      config,
    };
    const options = signal === undefined ? {} : { signal };
    if (position.snapshotId === undefined) return images.compose(input, options);
    return trees.with(position.snapshotId, signal, ({ tree }) =>
      images.compose({ ...input, upperDir: tree.upperDir }, options),
    );
  }

  async #cache(isOff: boolean): Promise<Map<string, string>> {
    const cache = new Map<string, string>();
    if (isOff) return cache;
    for (const { id, tags } of await this.#parts.services.snapshots.list()) {
      if (!tags.includes(cacheTag)) continue;
      for (const tag of tags) if (tag !== cacheTag) cache.set(tag, id);
    }
    return cache;
  }

  #takeContext(id: string): { context: BuildContext; file: string } {
    const found = this.#contexts.get(id);
    this.#contexts.delete(id);
    if (found !== undefined) return found;
    throw new CoppiceError('not_found', 'the build context has expired', {
      hint: 'They are kept for an hour, and for one build: send them again.',
    });
  }

  async #forgetOld(): Promise<void> {
    for (const [id, { file, atMs }] of this.#contexts) {
      if (this.#parts.now() - atMs < contextLifeMs) continue;
      this.#contexts.delete(id);
      await rm(file, { force: true });
    }
  }

  get #contextsDir(): string {
    return join(this.#parts.directory, 'contexts');
  }
  get #cacheDir(): string {
    return join(this.#parts.directory, 'cache');
  }
}

/** The variables that every Dockerfile may declare. */
function platformArgs(): Record<string, string> {
  const { architecture, variant = '' } = machinePlatform();
  const name = variant === '' ? `linux/${architecture}` : `linux/${architecture}/${variant}`;
  const kinds = ['TARGET', 'BUILD'];
  return Object.fromEntries(
    kinds.flatMap((kind) => [
      [`${kind}PLATFORM`, kind === 'TARGET' && variant === 'v8' ? `linux/${architecture}` : name],
      [`${kind}OS`, 'linux'],
      [`${kind}ARCH`, architecture],
      [`${kind}VARIANT`, variant],
    ]),
  );
}

function warnOfUnused(
  { args, dockerfile }: BuildInput,
  { all }: Stages,
  emit: (event: BuildEvent) => void,
): void {
  const declared = new Set(
    [...dockerfile.matchAll(/^\s*ARG\s+(.*)$/gim)].flatMap(([, rest = '']) =>
      rest.split(/\s+/).map((word) => word.split('=')[0]!),
    ),
  );
  const unused = Object.keys(args).filter((name) => !declared.has(name));
  if (unused.length > 0 && all.length > 0)
    emit({ type: 'warning', text: `no ARG of the Dockerfile declares ${unused.join(', ')}` });
}
