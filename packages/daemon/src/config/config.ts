import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { CoppiceError, driverNameSchema, idleActionSchema, imageRefSchema } from '@coppice/protocol';
import { z } from 'zod';

const hostSchema = z
  .string()
  .regex(
    /^[a-z0-9[][a-z0-9.:[\]-]{0,252}$/,
    'must be the host of a registry in lower case, with its port if it has one',
  );

/** What `config.json` in the home may say. Unknown keys are refused: a misspelt limit must not be no limit. */
const configSchema = z.strictObject({
  listen: z
    .strictObject({
      host: z.enum(['127.0.0.1', '::1', 'localhost']).default('127.0.0.1'),
      /** 0 takes any free port. */
      port: z.int().min(0).max(65535).default(7310),
    })
    .prefault({}),
  /** Names besides the loopback's under which a proxy on this machine may ask for the daemon. */
  allowed_hosts: z
    .array(
      z
        .string()
        .regex(
          /^[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?$/,
          'must be the name of a host, without a port',
        ),
    )
    .max(32)
    .default([]),
  default_driver: driverNameSchema.default('container'),
  default_image: imageRefSchema.default('host'),
  /** What a sandbox gets when its creator does not say. */
  defaults: z
    .strictObject({
      cpus: z.number().min(0.1).max(256).default(2),
      memory_mb: z.int().min(16).max(4_194_304).default(512),
      disk_mb: z.int().min(16).max(67_108_864).default(10_240),
      pids: z.int().min(8).max(4_194_304).default(512),
      idle_timeout_s: z.int().min(1).max(31_536_000).nullable().default(null),
      idle_action: idleActionSchema.default('pause'),
    })
    .prefault({}),
  limits: z
    .strictObject({
      max_sandboxes: z.int().min(1).max(100_000).default(1000),
      /** That one session of agents (MCP) may own. */
      sandboxes_per_session: z.int().min(1).max(100_000).default(20),
      /** After which agents' sandboxes are destroyed with their snapshots, unless they ask for more or less; null: never. */
      agent_lifetime_s: z.int().min(60).max(31_536_000).nullable().default(86_400),
      /** Of each sandbox: the newest that are kept of what undoes merges and restores. */
      undo_snapshots: z.int().min(1).max(1000).default(10),
      /** Of the whole home. */
      max_snapshots: z.int().min(1).max(10_000_000).default(100_000),
      /** What a sandbox's own token may have: this many snapshots, undo snapshots included ... */
      snapshots_per_sandbox: z.int().min(1).max(1_000_000).default(1000),
      /** ... which together hold this many times its disk and memory. */
      snapshot_space_per_sandbox: z.number().min(0.1).max(1000).default(4),
      /** How many events are kept, and how long. */
      events_kept: z.int().min(100).max(10_000_000).default(100_000),
      events_days: z.int().min(1).max(3650).default(90),
      /** Who takes no byte of a download or an export for this long is taken for gone. */
      stalled_reader_s: z.int().min(1).max(86_400).default(600),
      /** The same for who is waited for and sends no byte of an upload. */
      stalled_sender_s: z.int().min(1).max(86_400).default(600),
      /** How long the head of a request may take to arrive, and how long a JSON document in its body. */
      request_timeout_s: z.int().min(1).max(3600).default(30),
      /** How long the agent of a sandbox may be silent while something is asked of it; what walks over files gets more. */
      agent_answer_s: z.int().min(1).max(3600).default(60),
      /** How long the memory of a sandbox may take to be written, and to be brought back. */
      memory_s: z.int().min(1).max(86_400).default(600),
      /** At the port, and as many again at the socket of the home; each at most a sixth of the files it may have open. */
      connections: z.int().min(8).max(100_000).default(1000),
      /** To forwarded ports, all together; one port may have half of them. */
      forward_connections: z.int().min(8).max(100_000).default(1000),
      /** What one push to the forge may hold. */
      forge_push_mb: z.int().min(1).max(1_000_000).default(1024),
      /** What one repository of the forge may hold before nothing more is taken in. */
      forge_repository_mb: z.int().min(1).max(100_000_000).default(10_240),
      /** What the events of one run may take in the database, before what its agent says is not kept any more. */
      run_record_mb: z.int().min(1).max(1_000_000).default(256),
      /** Of all sandboxes that run, by what they were promised; null: no limit. */
      total_memory_mb: z.int().min(16).nullable().default(null),
      /** Per token. */
      requests_per_s: z.number().min(1).default(2000),
      burst: z.int().min(1).default(4000),
    })
    .prefault({}),
  /** The server that sends mail, for `coppice project news add mailto:ADDRESS`. */
  mail: z
    .strictObject({
      host: z.string().min(1).max(255),
      port: z.int().min(1).max(65_535).default(587),
      /** How the connection is encrypted; `none` is for a server on this machine. */
      tls: z.enum(['starttls', 'implicit', 'none']).default('starttls'),
      from: z.string().min(3).max(320),
      user: z.string().min(1).max(320).optional(),
      /** A file that holds the password; it is read when a mail is sent. */
      password_file: z.string().startsWith('/', 'must be an absolute path').max(4096).optional(),
      /** A file with an authority that the server's certificate is held to, besides the well-known ones. */
      ca_file: z.string().startsWith('/', 'must be an absolute path').max(4096).optional(),
    })
    .nullable()
    .default(null),
  projects: z
    .strictObject({
      /** A project in which nothing happened for so long is shown as forgotten, and news of it are sent. */
      forgotten_after_s: z.number().min(1).max(31_536_000).default(1_209_600),
    })
    .prefault({}),
  /** How runs are watched. */
  run_health: z
    .strictObject({
      /** A heartbeat is due this often. */
      interval_s: z.number().min(0.1).max(3600).default(3),
      /** So many in a row may be missed before it counts as degraded, and as failed. */
      degraded_after: z.int().min(1).max(1000).default(2),
      failed_after: z.int().min(1).max(1000).default(3),
      /** Without an event and without a call to a model. */
      stuck_s: z.number().min(1).max(2_592_000).default(900),
      /** For the agent to end by itself before it is ended. */
      grace_s: z.number().min(0).max(3600).default(10),
      cooldown_s: z.number().min(0).max(86_400).default(60),
      restarts_per_hour: z.int().min(0).max(1000).default(3),
    })
    .prefault({}),
  gateway: z
    .strictObject({
      /** Name servers that the gateway asks; empty: the resolver of this machine, with its hosts file. */
      resolvers: z
        .array(z.union([z.ipv4(), z.ipv6(), z.string().regex(/^\d{1,3}(\.\d{1,3}){3}:\d{1,5}$/)]))
        .max(8)
        .default([]),
      /** Files in PEM with authorities that the hosts of secrets are held to, besides the well-known ones. */
      authorities: z.array(z.string().startsWith('/', 'must be an absolute path')).max(16).default([]),
      /** A command that prints the key that secrets are sealed with, and below it earlier ones; null: a file of the gateway has it. */
      key_command: z
        .tuple([z.string().startsWith('/', 'must be an absolute path')], z.string())
        .nullable()
        .default(null),
      /** How long a connection of a sandbox that asks waits for an answer. */
      ask_timeout_s: z.int().min(1).max(86_400).default(120),
    })
    .prefault({}),
  disks: z
    .strictObject({
      /** How disks are kept. `auto`: btrfs, and what the filesystem of the home can do where btrfs cannot be had. */
      engine: z.enum(['auto', 'btrfs', 'reflink', 'copy']).default('auto'),
    })
    .prefault({}),
  /** Started sandboxes of the default shape that wait for a create. */
  warm_pool: z.int().min(0).max(100).default(2),
  /** The one directory of this machine that agents may move files from and to; null: `transfer` in the home. */
  transfer_dir: z.string().startsWith('/', 'must be an absolute path').nullable().default(null),
  /** Of `log/daemon.log`, and as much again of the one before it. */
  log_max_mb: z.int().min(1).max(10_240).default(16),
  /** Where images come from, by the host that stands in their names. */
  registries: z
    .record(
      hostSchema,
      z.strictObject({
        /** Hosts that are asked first. Without TLS only where they are this machine. */
        mirrors: z.array(hostSchema).max(16).default([]),
        /** A file with the certificates of authorities that sign for it and its mirrors. */
        ca: z.string().startsWith('/', 'must be an absolute path').optional(),
      }),
    )
    .default({}),
  /** Whether an image that is not here is pulled when a sandbox is made of it. */
  pull_missing_images: z.boolean().default(true),
  /** Where `docker login` keeps its logins; null: `.docker/config.json` of the account that the daemon runs as. */
  docker_config: z.string().startsWith('/', 'must be an absolute path').nullable().default(null),
  /** Keeps the memory of containers; null: the one on the PATH of the system. */
  criu: z.string().startsWith('/', 'must be an absolute path').nullable().default(null),
  /** Runs the sandboxes of the driver gvisor; null: the one on the PATH of the system. */
  runsc: z.string().startsWith('/', 'must be an absolute path').nullable().default(null),
  log_level: z.enum(['debug', 'info', 'warn', 'error']).default('info'),
});
export type Config = z.output<typeof configSchema>;

/**
 * A missing file means all defaults; a file that cannot be understood is refused whole. The digest is of the text, empty
 * where there is none: by it `coppice up` knows whether the file has changed since. A port that is given stands in for
 * that of the file.
 */
export async function readConfig(path: string, port?: number): Promise<{ config: Config; digest: string }> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  const digest = createHash('sha256')
    .update(text ?? '')
    .digest('hex');
  const config = parseConfig(path, text ?? '{}');
  return { config: { ...config, listen: { ...config.listen, port: port ?? config.listen.port } }, digest };
}

function parseConfig(path: string, text: string): Config {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new CoppiceError('invalid_argument', `${path} is not JSON: ${(cause as Error).message}`, {
      hint: 'Correct the file, or remove it to go on with the defaults.',
      cause,
    });
  }
  const parsed = configSchema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(
    (issue) => `${issue.path.join('.') || 'the file'}: ${issue.message}`,
  );
  throw new CoppiceError('invalid_argument', `${path} is refused: ${issues.join('; ')}`, {
    hint: 'Correct what is named; docs/guide.md lists every key.',
  });
}
