import type { commitImageSchema, Image } from '@coppice/protocol';
import type { z } from 'zod';
import type { CallOptions } from '../services.ts';
import type { TreeAccess } from '../trees/tree-access.ts';
import type { ImageService } from './image-service.ts';

/** Makes images of snapshots. */
export class CommitService {
  readonly #trees: TreeAccess;
  readonly #images: ImageService;

  constructor(trees: TreeAccess, images: ImageService) {
    this.#trees = trees;
    this.#images = images;
  }

  /** Files alone: neither memory nor the environment of the sandbox, which may hold secrets. */
  commit(input: z.output<typeof commitImageSchema>, options: CallOptions = {}): Promise<Image> {
    const { from, name, comment } = input;
    return this.#trees.with(from, options.signal, ({ imageId, tree, label }) =>
      this.#images.commit(
        {
          name,
          baseId: imageId,
          upperDir: tree.upperDir,
          of: label,
          ...(comment === undefined ? {} : { comment: { comment } }),
        },
        options,
      ),
    );
  }
}
