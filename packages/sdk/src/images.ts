import type { Image, RouteBody } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import type { UploadBody } from './connection/transport.ts';

export class Images {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  async list({ signal }: CallOptions = {}): Promise<Image[]> {
    return (await this.#caller.call('listImages', { signal })).items;
  }

  get(image: string, { signal }: CallOptions = {}): Promise<Image> {
    return this.#caller.call('getImage', { params: { image }, signal });
  }

  /** From `host`, `debian:<suite>`, or a path on the daemon's machine. */
  make({ signal, ...body }: RouteBody<'makeImage'> & CallOptions): Promise<Image> {
    return this.#caller.call('makeImage', { body, signal });
  }

  /** From a tar: plain, gzip or zstd. */
  import(
    name: string,
    archive: UploadBody,
    { sizeBytes, signal }: { readonly sizeBytes?: number } & CallOptions = {},
  ): Promise<Image> {
    return this.#caller.call('importImage', {
      query: { name },
      upload: archive,
      uploadBytes: sizeBytes,
      signal,
    });
  }

  async remove(image: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeImage', { params: { image }, signal });
  }
}
