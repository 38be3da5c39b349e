import { z } from 'zod';

/** A name that a policy allows or denies, with the ports that this holds for. */
export interface NameRule {
  /** `example.com`; `*.example.com` for every name below it, not for itself; `*` for every name. */
  readonly pattern: string;
  readonly ports: readonly number[];
}

export type Destination =
  | { readonly kind: 'block'; readonly block: string }
  /** Not a place: a secret that the gateway puts into requests to the hosts that it belongs to. */
  | { readonly kind: 'secret'; readonly secret: string }
  | { readonly kind: 'names'; readonly rules: readonly NameRule[] };

export const secretNamePattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;

/** What a name means where it says no port: the web. */
export const webPorts: readonly number[] = [80, 443];

/** Words for what everybody needs. */
export const presets: Readonly<Record<string, readonly string[]>> = {
  npm: ['registry.npmjs.org'],
  pypi: ['pypi.org', 'files.pythonhosted.org'],
  debian: ['deb.debian.org', 'security.debian.org'],
  github: ['github.com', '*.github.com', '*.githubusercontent.com'],
  anthropic: ['api.anthropic.com'],
  openai: ['api.openai.com'],
  google: ['generativelanguage.googleapis.com'],
};

/** Names that the gateway itself answers to. */
export const ownDomain = 'coppice';

/** The gateway itself, which answers for models. */
const modelsWord = 'models';
const modelsName = `gateway.${ownDomain}`;

const blockSchema = z.union([z.ipv4(), z.cidrv4()]);
const label = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** A name as it is compared: lower case, no dot at its end. */
export const plainName = (name: string): string => name.toLowerCase().replace(/\.$/, '');

/** Whether a policy could name it: two labels at least, and not one of the gateway's own. */
export const isName = (name: string): boolean => {
  const labels = name.split('.');
  return (
    name.length <= 253 &&
    labels.length >= 2 &&
    labels.every((part) => label.test(part)) &&
    !/^\d+$/.test(labels.at(-1) ?? '') &&
    labels.at(-1) !== ownDomain
  );
};

/** What one entry of `allow` or `deny` means, or what is wrong with it. */
export function parseDestination(text: string): Destination | { readonly problem: string } {
  if (blockSchema.safeParse(text).success) return { kind: 'block', block: text };
  if (text.startsWith('secret:')) {
    const secret = text.slice('secret:'.length);
    return secretNamePattern.test(secret) ? { kind: 'secret', secret } : { problem: 'names no secret' };
  }
  const [, written = '', portText] = /^([^:]*)(?::(.*))?$/s.exec(text) ?? [];
  const ports = portText === undefined ? webPorts : portOf(portText);
  if (ports === undefined) return { problem: 'names a port that is not between 1 and 65535' };
  const name = written === '*.' ? '' : plainName(written);
  if (name === modelsWord && portText === undefined)
    return { kind: 'names', rules: [{ pattern: modelsName, ports: [80] }] };
  const preset = Object.hasOwn(presets, name) ? presets[name] : undefined;
  if (preset !== undefined) {
    if (portText !== undefined) return { problem: `is a preset, and presets take no port` };
    return { kind: 'names', rules: preset.map((pattern) => ({ pattern, ports: webPorts })) };
  }
  const below = name.startsWith('*.') ? name.slice(2) : name;
  if (name === '*' || isName(below)) return { kind: 'names', rules: [{ pattern: name, ports }] };
  return {
    problem:
      'must be an IPv4 address, a block such as 198.51.100.0/24, a name such as example.com, *.example.com or ' +
      `example.com:22, models, secret:NAME, or one of ${Object.keys(presets).join(', ')}`,
  };
}

const portOf = (text: string): readonly number[] | undefined => {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65535 ? [port] : undefined;
};

export const destinationSchema = z
  .string()
  .max(300)
  .superRefine((text, context) => {
    const parsed = parseDestination(text);
    if ('problem' in parsed) context.addIssue({ code: 'custom', message: parsed.problem, input: text });
  });

export interface Destinations {
  readonly blocks: readonly string[];
  readonly names: readonly NameRule[];
  /** Secrets that may be used. */
  readonly secrets: readonly string[];
}

/** Entries that the schema has passed, sorted by what they are. */
export function destinationsOf(entries: readonly string[]): Destinations {
  const parsed = entries.map(parseDestination).filter((entry) => 'kind' in entry);
  return {
    blocks: parsed.flatMap((entry) => (entry.kind === 'block' ? [entry.block] : [])),
    names: parsed.flatMap((entry) => (entry.kind === 'names' ? entry.rules : [])),
    secrets: parsed.flatMap((entry) => (entry.kind === 'secret' ? [entry.secret] : [])),
  };
}

const matches = (pattern: string, name: string): boolean =>
  pattern === '*' || pattern === name || (pattern.startsWith('*.') && name.endsWith(pattern.slice(1)));

/** Whether one of the rules speaks of this name, at this port if one is given. */
export const ruleFor = (rules: readonly NameRule[], name: string, port?: number): NameRule | undefined =>
  rules.find(({ pattern, ports }) => matches(pattern, name) && (port === undefined || ports.includes(port)));

/** Whether a sandbox with these rules may ask for models. */
export const mayAskModels = (rules: readonly NameRule[]): boolean =>
  rules.some(({ pattern }) => pattern === modelsName);

/** Stands where a key would: the gateway knows who calls by the address, and has the real keys. */
export const placeholderKey = 'coppice-placeholder';

/** What programs look for to find a model, for a sandbox that may ask for models. */
export const modelVariables: Readonly<Record<string, string>> = {
  ANTHROPIC_BASE_URL: `http://${modelsName}`,
  ANTHROPIC_API_KEY: placeholderKey,
  OPENAI_BASE_URL: `http://${modelsName}/v1`,
  OPENAI_API_KEY: placeholderKey,
  GOOGLE_GEMINI_BASE_URL: `http://${modelsName}`,
  GEMINI_API_KEY: placeholderKey,
};

/** Where the guest finds what a sandbox with secrets trusts: in memory, on no disk and in no snapshot. */
export const trustFiles = {
  authority: '/run/coppice/authority.pem',
  /** The authorities of the image, and ours. */
  bundle: '/run/coppice/ca-certificates.pem',
  /** The same as Java reads it. */
  java: '/run/coppice/authorities.jks',
  /** What stands over the stores of the image: one for each that differs. */
  stores: '/run/coppice/stores',
  /** Settings that lead apt to the bundle. */
  apt: '/run/coppice/apt.conf',
} as const;

/** What programs look for to find whom they may trust. */
export const trustVariables: Readonly<Record<string, string>> = {
  NODE_EXTRA_CA_CERTS: trustFiles.authority,
  DENO_CERT: trustFiles.authority,
  SSL_CERT_FILE: trustFiles.bundle,
  REQUESTS_CA_BUNDLE: trustFiles.bundle,
  CURL_CA_BUNDLE: trustFiles.bundle,
  GIT_SSL_CAINFO: trustFiles.bundle,
  PIP_CERT: trustFiles.bundle,
  CARGO_HTTP_CAINFO: trustFiles.bundle,
  AWS_CA_BUNDLE: trustFiles.bundle,
  APT_CONFIG: trustFiles.apt,
  JAVA_TOOL_OPTIONS: `-Djavax.net.ssl.trustStore=${trustFiles.java}`,
};
