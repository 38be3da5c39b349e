import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { CoppiceError, type ImageReference } from '@coppice/protocol';
import type { CredentialSource } from './credentials.ts';
import {
  type HttpAnswer,
  type HttpExchange,
  type HttpQuestion,
  readBody,
  speaksNoTls,
} from './http-exchange.ts';
import { acceptedManifests, type Descriptor } from './image-manifest.ts';
import { RegistryAccess } from './registry-access.ts';
import { checkAddress, isLoopback, registryHost } from './registry-address.ts';

export interface RegistryClientOptions {
  readonly exchange: HttpExchange;
  readonly credentials: CredentialSource;
}

export interface FetchedManifest {
  readonly bytes: Buffer;
  readonly digest: string;
  readonly contentType: string | undefined;
}

/** Where a registry answers; mirrors are tried before it. */
export interface Endpoint {
  /** As in names of images: what logins are kept for. */
  readonly registry: string;
  readonly host: string;
}

const mostManifestBytes = 4 << 20;
const mostErrorBytes = 64 << 10;

const digestOf = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

/** One registry: what the distribution specification has for reading and writing images. */
export class RegistryClient {
  readonly #options: RegistryClientOptions;
  readonly #endpoint: Endpoint;
  readonly #access: RegistryAccess;
  #base: Promise<URL> | undefined;

  constructor(endpoint: Endpoint, options: RegistryClientOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#access = new RegistryAccess({
      exchange: options.exchange,
      credentials: () => options.credentials.find(endpoint.registry),
    });
  }

  static of(registry: string, options: RegistryClientOptions): RegistryClient {
    return new RegistryClient({ registry, host: registryHost(registry) }, options);
  }

  /** By digest where there is one: the bytes are what the digest is of, or it throws. */
  async fetchManifest(
    { repository, tag, digest }: Pick<ImageReference, 'repository' | 'tag' | 'digest'>,
    signal?: AbortSignal,
  ): Promise<FetchedManifest> {
    const answer = await this.#ask(`${repository}/manifests/${digest ?? tag}`, pulls(repository), {
      headers: { accept: acceptedManifests },
      signal,
    });
    await this.#expect(answer, 200, `${repository}${digest === undefined ? `:${tag}` : `@${digest}`}`);
    const bytes = await readBody(answer, mostManifestBytes);
    const found = digestOf(bytes);
    const said = answer.headers['docker-content-digest'];
    if (
      (digest !== undefined && found !== digest) ||
      (typeof said === 'string' && isSha256(said) && said !== found)
    )
      throw new CoppiceError(
        'unsafe',
        `${this.#endpoint.host} answers with another document than the one that was asked for`,
        {
          details: { wanted: digest ?? said, found },
        },
      );
    return { bytes, digest: found, contentType: answer.headers['content-type'] };
  }

  /** A small blob, whole and checked. */
  async fetchSmallBlob(
    repository: string,
    blob: Descriptor,
    mostBytes: number,
    signal?: AbortSignal,
  ): Promise<Buffer> {
    if (blob.size > mostBytes)
      throw new CoppiceError('too_large', `${blob.digest} has ${blob.size} bytes; ${mostBytes} are allowed`);
    const { body } = await this.openBlob(repository, blob, 0, signal);
    const bytes = await readBody(body, blob.size);
    if (bytes.length !== blob.size || digestOf(bytes) !== blob.digest)
      throw damagedBlob(this.#endpoint.host, blob);
    return bytes;
  }

  /** Its bytes from `offset` on, or from the beginning where the registry cannot start later. Nothing is checked yet. */
  async openBlob(
    repository: string,
    blob: Descriptor,
    offset: number,
    signal?: AbortSignal,
  ): Promise<{ body: HttpAnswer; offset: number }> {
    const headers: Record<string, string> = { 'accept-encoding': 'identity' };
    if (offset > 0) headers.range = `bytes=${offset}-`;
    const body = await this.#ask(`${repository}/blobs/${blob.digest}`, pulls(repository), {
      headers,
      signal,
    });
    if (offset > 0 && body.status === 206) {
      const [, start, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(body.headers['content-range'] ?? '') ?? [];
      if (Number(start) === offset && (total === '*' || Number(total) === blob.size)) return { body, offset };
      body.body.destroy();
      throw damagedBlob(this.#endpoint.host, blob);
    }
    await this.#expect(body, 200, `${repository}@${blob.digest}`);
    const length = body.headers['content-length'];
    if (length !== undefined && Number(length) !== blob.size) {
      body.body.destroy();
      throw damagedBlob(this.#endpoint.host, blob);
    }
    return { body, offset: 0 };
  }

  /** Sends a blob, unless the registry has it: here, or in the repository `from`. */
  async pushBlob(
    repository: string,
    blob: Descriptor,
    open: () => Readable,
    { from, signal }: { readonly from?: string | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<'present' | 'mounted' | 'done'> {
    const scope = pushes(repository);
    const head = await this.#ask(`${repository}/blobs/${blob.digest}`, scope, { method: 'HEAD', signal });
    head.body.resume();
    if (head.status === 200) return 'present';
    if (head.status !== 404) await this.#expect(head, 200, `leave to write to ${repository}`);
    const begun = await this.#beginUpload(repository, blob, from, signal);
    if (begun.status === 201) return 'mounted';
    const place = uploadPlace(begun, blob.digest);
    const question: HttpQuestion = {
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream' },
      body: { stream: open(), sizeBytes: blob.size },
      signal,
    };
    // Another host that the content is to go to has no business with the login.
    const sent =
      place.origin === begun.url.origin
        ? await this.#access.ask(place, scope, question)
        : await this.#options.exchange.ask(place, question);
    await this.#expect(sent, 201, `leave to write to ${repository}`);
    sent.body.resume();
    return 'done';
  }

  /** Status 201: the registry had it elsewhere, and that was all. */
  async #beginUpload(
    repository: string,
    { digest }: Pick<Descriptor, 'digest'>,
    from: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<HttpAnswer> {
    const uploads = `${repository}/blobs/uploads/`;
    const mounts = from !== undefined && from !== repository;
    const begun = mounts
      ? await this.#ask(
          `${uploads}?mount=${digest}&from=${encodeURIComponent(from)}`,
          `${pushes(repository)} ${pulls(from)}`,
          { method: 'POST', signal },
        )
      : await this.#ask(uploads, pushes(repository), { method: 'POST', signal });
    if (mounts && begun.status !== 201 && begun.status !== 202) {
      begun.body.resume();
      return this.#beginUpload(repository, { digest }, undefined, signal);
    }
    if (begun.status !== 201) await this.#expect(begun, 202, `leave to write to ${repository}`);
    begun.body.resume();
    return begun;
  }

  async pushManifest(
    repository: string,
    tag: string,
    mediaType: string,
    bytes: Buffer,
    signal?: AbortSignal,
  ): Promise<void> {
    const answer = await this.#ask(`${repository}/manifests/${tag}`, pushes(repository), {
      method: 'PUT',
      headers: { 'content-type': mediaType },
      body: bytes,
      signal,
    });
    await this.#expect(answer, 201, `leave to write ${repository}:${tag}`);
    answer.body.resume();
  }

  /** Whether the registry lets us in at all. */
  async check(signal?: AbortSignal): Promise<void> {
    const answer = await this.#ask('', '', { signal });
    await this.#expect(answer, 200, 'its own door');
    answer.body.resume();
  }

  async #ask(path: string, scope: string, question: HttpQuestion): Promise<HttpAnswer> {
    this.#base ??= this.#findBase(question.signal);
    const base = await this.#base.catch((error: unknown) => {
      this.#base = undefined;
      throw error;
    });
    return this.#access.ask(new URL(path, base), scope, question);
  }

  /** With TLS; on this machine also without, where there is none. */
  async #findBase(signal: AbortSignal | undefined): Promise<URL> {
    const secure = new URL(`https://${this.#endpoint.host}/v2/`);
    if (!isLoopback(secure.hostname)) return secure;
    try {
      const answer = await this.#options.exchange.ask(secure, { signal });
      answer.body.resume();
      return secure;
    } catch (error) {
      if (speaksNoTls(error)) return new URL(`http://${this.#endpoint.host}/v2/`);
      throw error;
    }
  }

  async #expect(answer: HttpAnswer, status: number, what: string): Promise<void> {
    if (answer.status === status) return;
    const { host, registry } = this.#endpoint;
    const said = await errorText(answer);
    if (answer.status === 404) {
      throw new CoppiceError('not_found', `${host} has no ${what}${said}`, {
        hint: 'Check the name and the tag. Some registries also say so of what needs a login.',
      });
    }
    if (answer.status === 401 || answer.status === 403) {
      throw new CoppiceError('forbidden', `${host} does not give ${what}${said}`, {
        hint: `It needs a login, or does not exist: coppice images login ${registry}`,
      });
    }
    if (answer.status === 429)
      throw new CoppiceError('rate_limited', `${host} has had too many calls from this machine${said}`, {
        hint: `Wait, or log in for a higher limit: coppice images login ${registry}`,
      });
    throw new CoppiceError('unavailable', `${host} answers with status ${answer.status}${said}`, {
      hint: 'Try again in a moment.',
    });
  }
}

const pulls = (repository: string): string => `repository:${repository}:pull`;

const pushes = (repository: string): string => `repository:${repository}:pull,push`;

function uploadPlace(answer: HttpAnswer, digest: string): URL {
  const location = answer.headers.location ?? '';
  if (!URL.canParse(location, answer.url.href))
    throw new CoppiceError('unavailable', `${answer.url.host} does not say where to send content`);
  const place = new URL(location, answer.url);
  checkAddress(place, answer.url);
  place.searchParams.set('digest', digest);
  return place;
}

const isSha256 = (text: string): boolean => /^sha256:[0-9a-f]{64}$/.test(text);

export const damagedBlob = (host: string, { digest }: Descriptor): CoppiceError =>
  new CoppiceError('unsafe', `${host} sends other bytes than those that ${digest} is of`, {
    hint: 'Nothing of it was kept. Try again; if it goes on, the registry or what lies between is broken or lying.',
  });

/** What the registry itself has to say, made harmless for a terminal. */
async function errorText(answer: HttpAnswer): Promise<string> {
  try {
    const text = (await readBody(answer, mostErrorBytes)).toString('utf8');
    const { errors } = JSON.parse(text) as { errors?: { message?: unknown }[] };
    const message = errors?.[0]?.message;
    if (typeof message !== 'string' || message === '') return '';
    return `: ${message.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 200)}`;
  } catch {
    answer.body.destroy();
    return '';
  }
}
