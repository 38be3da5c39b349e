import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseImageReference } from '@coppice/protocol';
import { guestProgram } from '@coppice/testkit';
import { LayerProgram } from '../../src/images/layers/layer-program.ts';
import { LayerStore } from '../../src/images/layers/layer-store.ts';
import { BlobStore } from '../../src/images/oci/blob-store.ts';
import type { CredentialSource, Credentials } from '../../src/images/oci/credentials.ts';
import { machinePlatform } from '../../src/images/oci/platform.ts';
import { type ImageDocuments, type PullOptions, pullImage } from '../../src/images/oci/pull-image.ts';
import { Registries, type RegistriesOptions } from '../../src/images/oci/registries.ts';

export const layerProgram = new LayerProgram(guestProgram('coppice-layer'));

export const openLayers = (
  directory: string,
  limits = { maxBytes: 1 << 30, maxEntries: 100_000 },
): Promise<LayerStore> => LayerStore.open({ directory, program: layerProgram, limits });

/** Logins that are known from the start. */
export const logins = (known: Readonly<Record<string, Credentials>>): CredentialSource => ({
  find: async (registry) => known[registry],
});

/** Pulls into a directory of a test. */
export class Puller {
  readonly layers: LayerStore;
  readonly blobs: BlobStore;
  readonly #directory: string;

  private constructor(directory: string, layers: LayerStore) {
    this.#directory = directory;
    this.layers = layers;
    this.blobs = new BlobStore(join(directory, 'blobs'));
  }

  static async open(directory: string): Promise<Puller> {
    return new Puller(directory, await openLayers(join(directory, 'layers')));
  }

  async pull(name: string, options: Partial<RegistriesOptions> & PullOptions = {}): Promise<ImageDocuments> {
    const { signal, onLayer, credentials = logins({}), ...settings } = options;
    const registries = new Registries({ credentials, ...settings });
    try {
      const parts = { registries, blobs: this.blobs, layers: this.layers, platform: machinePlatform() };
      return await pullImage(parseImageReference(name), parts, {
        signal,
        ...(onLayer === undefined ? {} : { onLayer }),
      });
    } finally {
      registries.close();
    }
  }

  /** Names of what lies in its directories, of half-made things too. */
  async left(): Promise<string[]> {
    const lists = ['layers', 'blobs'].map((name) => readdir(join(this.#directory, name)).catch(() => []));
    return (await Promise.all(lists)).flat();
  }
}
