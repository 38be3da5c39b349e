import { CoppiceError } from './errors.ts';

/** The name of an image in a registry, in full. */
export interface ImageReference {
  /** Host, with a port where one was given: `docker.io`, `localhost:5000`. */
  readonly registry: string;
  readonly repository: string;
  readonly tag?: string;
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest?: string;
}

const defaultRegistry = 'docker.io';
const officialPrefix = 'library/';
const defaultTag = 'latest';

const maxChars = 512;
const maxRepositoryChars = 255;
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const registryPattern = new RegExp(`^(?:${label}(?:\\.${label})*|\\[[0-9A-Fa-f:]{2,45}\\])(?::[0-9]{1,5})?$`);
const componentPattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const digestPattern = /^sha256:[0-9a-f]{64}$/;

export const isImageDigest = (text: string): boolean => digestPattern.test(text);

/** Understands what docker does: `python`, `python:3.12-slim`, `ghcr.io/org/app@sha256:…`, `localhost:5000/app`. */
export function parseImageReference(text: string): ImageReference {
  if (text.length === 0 || text.length > maxChars) throw refused(text, `it has ${text.length} characters`);
  const at = text.indexOf('@');
  const digest = at < 0 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !isImageDigest(digest))
    throw refused(text, 'after `@` comes a digest: `sha256:` and 64 hexadecimal digits');
  const { registry, path } = splitRegistry(at < 0 ? text : text.slice(0, at));
  const colon = path.lastIndexOf(':');
  const named = colon < 0 ? path : path.slice(0, colon);
  const tag = colon < 0 ? undefined : path.slice(colon + 1);
  if (tag !== undefined && !tagPattern.test(tag))
    throw refused(text, 'a tag is up to 128 letters, digits, `_`, `.` or `-`');
  const port = Number(/:([0-9]+)$/.exec(registry)?.[1] ?? 1);
  if (!registryPattern.test(registry) || port < 1 || port > 65535)
    throw refused(text, `${JSON.stringify(registry)} is not the host of a registry`);
  const repository = registry === defaultRegistry && !named.includes('/') ? officialPrefix + named : named;
  if (
    repository.length > maxRepositoryChars ||
    !repository.split('/').every((part) => componentPattern.test(part))
  )
    throw refused(
      text,
      'its path is lower-case letters and digits, with `.`, `_`, `-` between them and `/` between its parts',
    );
  if (tag === undefined && digest === undefined) return { registry, repository, tag: defaultTag };
  return {
    registry,
    repository,
    ...(tag === undefined ? {} : { tag }),
    ...(digest === undefined ? {} : { digest }),
  };
}

/** As people write it: without the registry and the prefix that are meant when there is none. */
export function formatImageReference({ registry, repository, tag, digest }: ImageReference): string {
  const official = registry === defaultRegistry;
  const path =
    official && repository.startsWith(officialPrefix) ? repository.slice(officialPrefix.length) : repository;
  // A first part with a dot would be read as a host.
  const host = official && !looksLikeHost(path.split('/')[0]!, path.includes('/')) ? '' : `${registry}/`;
  return `${host}${path}${tag === undefined ? '' : `:${tag}`}${digest === undefined ? '' : `@${digest}`}`;
}

function splitRegistry(name: string): { registry: string; path: string } {
  const slash = name.indexOf('/');
  const first = slash < 0 ? '' : name.slice(0, slash);
  if (slash < 0 || !looksLikeHost(first, true)) return { registry: defaultRegistry, path: name };
  const registry = first.toLowerCase();
  const known = registry === 'index.docker.io' || registry === 'registry-1.docker.io';
  return { registry: known ? defaultRegistry : registry, path: name.slice(slash + 1) };
}

const looksLikeHost = (part: string, followed: boolean): boolean =>
  followed && (/[.:[]/.test(part) || part === 'localhost' || part !== part.toLowerCase());

const refused = (text: string, reason: string): CoppiceError =>
  new CoppiceError(
    'invalid_argument',
    `${JSON.stringify(text.slice(0, 100))} is not the name of an image: ${reason}`,
    {
      hint: 'Write it as in `docker pull`: python:3.12-slim, ghcr.io/org/app:1.0, localhost:5000/app@sha256:…',
    },
  );
