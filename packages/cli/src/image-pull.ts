import type { Image } from '@coppice/protocol';
import type { Cli } from './cli.ts';

/** Gets an image from its registry, or only where it is not here, and shows how far all its layers are. */
export const pullImage = (cli: Cli, name: string, ifMissing = false): Promise<Image> =>
  cli.out.during(`pulling ${name}`, (progress) => {
    const layers = new Map<string, { done: number; total: number; isUnpacked: boolean }>();
    return cli.coppice.images.pull(name, {
      ifMissing,
      signal: cli.signal,
      onLayer: ({ digest, state, done_bytes: done, total_bytes: total }) => {
        layers.set(digest, { done, total, isUnpacked: state === 'done' });
        const all = [...layers.values()];
        const sum = (of: (layer: (typeof all)[number]) => number): number =>
          all.reduce((whole, layer) => whole + of(layer), 0);
        const ready = all.filter(({ isUnpacked }) => isUnpacked).length;
        progress.update({
          done: sum((layer) => layer.done),
          total: sum((layer) => layer.total),
          detail: `${ready} of ${all.length} layers ready`,
        });
      },
    });
  });

/** The image that a sandbox is to be made of; it is pulled or made where it is not here. */
export const findImage = (cli: Cli, name: string): Promise<Image> => pullImage(cli, name, true);
