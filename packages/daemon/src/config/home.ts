import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { HomeReserve } from './home-reserve.ts';

/** Where everything of one daemon lives. Daemons with different homes do not know each other. */
export class Home {
  readonly directory: string;
  /** Stands in the name of every cgroup, link, table and namespace of this home. */
  readonly key: string;
  readonly reserve: HomeReserve;

  private constructor(directory: string) {
    this.directory = directory;
    this.reserve = new HomeReserve(join(directory, 'reserve'), directory);
    this.key = createHash('sha256').update(directory).digest('hex').slice(0, 8);
  }

  /** Makes the directories; only root may look inside, as images, disks and secrets are below. */
  static open(directory: string): Home {
    const absolute = resolve(directory);
    makeDirectory(absolute);
    const home = new Home(realpathSync(absolute));
    home.reserve.relieve();
    // The gateway of an earlier daemon may still run, and passes through here to its files.
    const admitsGateway = statSync(home.directory).gid === home.gatewayId;
    chmodSync(home.directory, admitsGateway ? 0o710 : 0o700);
    for (const child of [home.runDir, home.logDir, home.imagesDir])
      mkdirSync(child, { recursive: true, mode: 0o700 });
    return home;
  }

  get configFile(): string {
    return join(this.directory, 'config.json');
  }
  get tokenFile(): string {
    return join(this.directory, 'token');
  }
  get databaseFile(): string {
    return join(this.directory, 'coppice.db');
  }
  get backupFile(): string {
    return join(this.directory, 'coppice.db.backup');
  }
  get lockFile(): string {
    return join(this.directory, 'daemon.lock');
  }
  /** Says where the running daemon listens; there only while it does. */
  get daemonFile(): string {
    return join(this.directory, 'daemon.json');
  }
  get logDir(): string {
    return join(this.directory, 'log');
  }
  get runDir(): string {
    return join(this.directory, 'run');
  }
  /** Not in `run`, which holds the directories of sandboxes and nothing else; daemon.json says where it is. */
  get socketFile(): string {
    return join(this.directory, 'coppice.sock');
  }
  get imagesDir(): string {
    return join(this.directory, 'images');
  }
  /** The layers that images are made of, unpacked, and packed as they came. */
  get layersDir(): string {
    return join(this.directory, 'layers');
  }
  get blobsDir(): string {
    return join(this.directory, 'blobs');
  }
  /** Logins to registries. */
  get loginsFile(): string {
    return join(this.directory, 'registries.json');
  }
  get transferDir(): string {
    return join(this.directory, 'transfer');
  }
  /** Files on their way in, until they are known to be whole. */
  /** Files that builds were sent, and what they keep for the next one. */
  get buildsDir(): string {
    return join(this.directory, 'builds');
  }
  get importsDir(): string {
    return join(this.directory, 'imports');
  }
  /** The user of the gateway: below the ids of sandboxes, and one for each home, so that gateways cannot touch each other. */
  get gatewayId(): number {
    return 0x1ff00000 + (Number.parseInt(this.key, 16) % 0x100000);
  }
  /** What the gateway knows, and its socket. */
  get gatewayDir(): string {
    return join(this.directory, 'gateway');
  }
  /** Repositories of the forge, and what forges elsewhere know us by. */
  get forgeDir(): string {
    return join(this.directory, 'forge');
  }
  /** Projects, their databases and workspaces, and the operator's own agent types. */
  get projectsDir(): string {
    return join(this.directory, 'sandbox');
  }
  /** The operator's own agents. */
  get agentsDir(): string {
    return join(this.directory, 'agent-templates');
  }
  /** What was kept of runs in quarantine. */
  get evidenceDir(): string {
    return join(this.directory, 'evidence');
  }
  /** The rules by which runs are watched. */
  get guardianFile(): string {
    return join(this.directory, 'guardian.json');
  }
  /** The notes that agents share. */
  get vaultDir(): string {
    return join(this.directory, 'vault');
  }
}

/** With those above it. Not Node's own way, which tries for ever where the kernel says that a new entry cannot exist, as in /proc. */
function makeDirectory(path: string): void {
  try {
    if (!existsSync(dirname(path))) makeDirectory(dirname(path));
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (error instanceof CoppiceError) throw error;
    if ((error as NodeJS.ErrnoException).code === 'EEXIST' && statSync(path).isDirectory()) return;
    throw new CoppiceError(
      'invalid_argument',
      `the home ${path} cannot be made: ${(error as Error).message}`,
      {
        hint: 'Choose another with --home or COPPICE_HOME: a directory on a disk of this machine.',
        cause: error,
      },
    );
  }
}
