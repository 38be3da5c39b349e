import type { BuildEvent, Image, PullEvent, PushEvent, RouteBody, RouteResult } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';
import { lastEvent } from './connection/last-event.ts';
import type { UploadBody } from './connection/transport.ts';

type LayerEvent = Extract<PullEvent, { type: 'layer' }>;

interface PullOptions extends CallOptions {
  /** Do nothing where there is an image of that name, as when a sandbox is made of it. */
  readonly if_missing?: boolean;
  /** How far each layer is. */
  readonly onLayer?: (layer: LayerEvent) => void;
}

interface BuildOptions extends Omit<RouteBody<'buildImage'>, 'context'>, CallOptions {
  readonly context?: UploadBody;
  readonly onEvent?: (event: Exclude<BuildEvent, { type: 'image' }>) => void;
}

type PushedImage = Extract<PushEvent, { type: 'pushed' }>;

interface PushOptions extends CallOptions {
  /** Where to, as in `docker push`. */
  readonly to?: string;
  readonly onLayer?: (layer: Extract<PushEvent, { type: 'layer' }>) => void;
}

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

  /**
   * From a registry, by the name that docker knows it by. Where the name stands for another image there than here, that one
   * comes in under the name, and what stands on the old one stays on it.
   */
  async pull(name: string, { if_missing = false, signal, onLayer }: PullOptions = {}): Promise<Image> {
    const body = { name, if_missing };
    const events = this.#caller.events('pullImage', { body, signal });
    return (await lastEvent<PullEvent, 'image'>(events, 'image', (layer) => onLayer?.(layer))).image;
  }

  /** Removes images that nothing stands on: those whose name went to a newer one, or all. */
  prune({
    all = false,
    builds = false,
    signal,
  }: { readonly all?: boolean; readonly builds?: boolean } & CallOptions = {}): Promise<
    RouteResult<'pruneImages'>
  > {
    return this.#caller.call('pruneImages', { body: { all, builds }, signal });
  }

  /** The registries that somebody logged in to on the daemon's machine. */
  async logins({ signal }: CallOptions = {}): Promise<RouteResult<'loginRegistry'>[]> {
    return (await this.#caller.call('listRegistries', { signal })).items;
  }

  /** Tries the password and keeps it on the daemon's machine. */
  login({
    signal,
    ...body
  }: RouteBody<'loginRegistry'> & CallOptions): Promise<RouteResult<'loginRegistry'>> {
    return this.#caller.call('loginRegistry', { body, signal });
  }

  async logout(registry: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('logoutRegistry', { params: { registry }, signal });
  }

  /** From `host`, `debian:<suite>`, or a path on the daemon's machine. */
  make({ signal, ...body }: RouteBody<'makeImage'> & CallOptions): Promise<Image> {
    return this.#caller.call('makeImage', { body, signal });
  }

  /**
   * From a tar, plain, gzip or zstd: a root filesystem, or an image as `docker save` and OCI tools write it. Only the latter may
   * bring its own name.
   */
  import(
    name: string | undefined,
    archive: UploadBody,
    { size_bytes: uploadBytes, signal }: { readonly size_bytes?: number } & CallOptions = {},
  ): Promise<Image> {
    return this.#caller.call('importImage', {
      query: name === undefined ? {} : { name },
      upload: archive,
      uploadBytes,
      signal,
    });
  }

  /**
   * From a Dockerfile, in sandboxes of the daemon. `context` is a tar of the files that it may copy: `packContext` makes one of a
   * directory.
   */
  async build({ signal, context, onEvent, ...body }: BuildOptions): Promise<Image> {
    const sent =
      context === undefined
        ? {}
        : { context: (await this.#caller.call('sendBuildContext', { upload: context, signal })).id };
    const events = this.#caller.events('buildImage', { body: { ...body, ...sent }, signal });
    return (await lastEvent<BuildEvent, 'image'>(events, 'image', (event) => onEvent?.(event))).image;
  }

  /** Of a snapshot, or of a sandbox as it is now: its files on top of those of its image. */
  commit({ signal, ...body }: RouteBody<'commitImage'> & CallOptions): Promise<Image> {
    return this.#caller.call('commitImage', { body, signal });
  }

  /** To a registry, under its own name or another. What the registry has already is not sent. */
  async push(image: string, { to, signal, onLayer }: PushOptions = {}): Promise<PushedImage> {
    const options = { params: { image }, body: to === undefined ? {} : { to }, signal };
    const events = this.#caller.events('pushImage', options);
    return lastEvent<PushEvent, 'pushed'>(events, 'pushed', (layer) => onLayer?.(layer));
  }

  /** As one tar that docker, podman and OCI tools read, and `import`. */
  export(image: string, { signal }: CallOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#caller.bytes('exportImage', { params: { image }, signal });
  }

  async remove(image: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removeImage', { params: { image }, signal });
  }
}
