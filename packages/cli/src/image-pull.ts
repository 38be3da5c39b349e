import type { Image } from '@coppice/protocol';
import type { Cli } from './cli.ts';

interface LayerReport {
  readonly digest: string;
  readonly state: string;
  readonly done_bytes: number;
  readonly total_bytes: number;
}

/** How far all layers of an image are together. */
export class LayerSums {
  readonly #layers = new Map<string, { done: number; total: number; isReady: boolean }>();

  add(
    { digest, state, done_bytes: done, total_bytes: total }: LayerReport,
    ready: readonly string[],
  ): { done: number; total: number; detail: string } {
    this.#layers.set(digest, { done, total, isReady: ready.includes(state) });
    const all = [...this.#layers.values()];
    return {
      done: all.reduce((sum, layer) => sum + layer.done, 0),
      total: all.reduce((sum, layer) => sum + layer.total, 0),
      detail: `${all.filter(({ isReady }) => isReady).length} of ${all.length} layers ready`,
    };
  }
}

/** Gets an image from its registry, or only where it is not here, and shows how far all its layers are. */
export const pullImage = (cli: Cli, name: string, ifMissing = false): Promise<Image> =>
  cli.out.during(`pulling ${name}`, (progress) => {
    const layers = new LayerSums();
    return cli.coppice.images.pull(name, {
      if_missing: ifMissing,
      signal: cli.signal,
      onLayer: (layer) => progress.update(layers.add(layer, ['done'])),
    });
  });

/** The image that a sandbox is to be made of; it is pulled or made where it is not here. */
export const findImage = (cli: Cli, name: string): Promise<Image> => pullImage(cli, name, true);
