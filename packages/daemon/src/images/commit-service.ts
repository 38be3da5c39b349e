import type { commitImageSchema, Image } from '@coppice/protocol';
import type { z } from 'zod';
import type { CallOptions } from '../services.ts';
import type { TreeAccess } from '../trees/tree-access.ts';
import type { ImageService } from './image-service.ts';

/** Makes images of snapshots. */
export class CommitService {
  readonly #trees: TreeAccess;
  readonly #images: ImageService;
  readonly #now: () => number;

  constructor(trees: TreeAccess, images: ImageService, now: () => number) {
    this.#trees = trees;
    this.#images = images;
    this.#now = now;
  }

  /** Files alone: neither memory nor the environment of the sandbox, which may hold secrets. */
  commit(input: z.output<typeof commitImageSchema>, options: CallOptions = {}): Promise<Image> {
    const { from, name, comment } = input;
    const createdAt = new Date(this.#now()).toISOString();
    return this.#trees.with(from, options.signal, ({ imageId, tree, label }) => {
      const entry = { created: createdAt, created_by: `coppice images commit ${label}` };
      return this.#images.compose(
        {
          name,
          baseId: imageId,
          upperDir: tree.upperDir,
          createdAt,
          source: { kind: 'commit', of: label },
          history: [comment === undefined ? entry : { ...entry, comment }],
        },
        options,
      );
    });
  }
}
