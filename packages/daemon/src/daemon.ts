import type { Ending } from '@coppice/runtime';
import { startChores } from './compose/chores.ts';
import { type DaemonOptions, endMachines, type Kernel, openKernel } from './compose/kernel.ts';
import { furnishRooms, type Rooms } from './compose/rooms.ts';
import { servicesOf } from './compose/services.ts';
import { homeToken } from './config/home-token.ts';
import { backupOf } from './db/backup.ts';
import { type DoorServices, doorServicesOf } from './door-services.ts';
import type { Housekeeper } from './host/housekeeper.ts';
import type { MetricsService } from './host/metrics-service.ts';
import { Recovery } from './journal/recovery.ts';
import { ProjectsRoom } from './projects/projects-room.ts';
import type { InsideDoor } from './runs/inside-door.ts';

/** Everything that is in one daemon: opened from the kernel up, closed from the chores down. */
export class Daemon {
  readonly services: DoorServices;
  /** Settles when recovery is done; calls are served before that, each waiting for its own sandbox at most. */
  readonly recovered: Promise<void>;
  readonly #kernel: Kernel;
  readonly #rooms: Rooms;
  readonly #projects: ProjectsRoom;
  readonly #housekeeper: Housekeeper;

  private constructor(kernel: Kernel, rooms: Rooms, recovered: Promise<void>) {
    this.#kernel = kernel;
    this.#rooms = rooms;
    this.recovered = recovered;
    const services = servicesOf(rooms);
    this.#projects = new ProjectsRoom({
      ...kernel,
      sender: rooms.webhookSender,
      directory: kernel.home.projectsDir,
      mail: kernel.config.mail,
      forgottenAfterS: kernel.config.projects.forgotten_after_s,
      services,
      mayDie: (point) => kernel.journal.step(point),
    });
    this.services = doorServicesOf({ ...services, projects: this.#projects });
    this.#housekeeper = startChores(kernel, rooms, this.#projects, recovered);
    rooms.feed.start();
  }

  static async open(options: DaemonOptions): Promise<Daemon> {
    const kernel = await openKernel(options);
    const swept = Promise.withResolvers<void>();
    swept.promise.catch(() => {});
    const rooms = furnishRooms(kernel, swept.promise);
    rooms.tokens.ensureAdmin(homeToken(kernel.home));
    const recovery = await new Recovery({
      ...rooms,
      undoImport: (snapshotId, imageDigest) => rooms.importer.undo(snapshotId, imageDigest),
      endedBecause: kernel.pool.wasReadOnly
        ? 'it was ended because the pool had become read-only'
        : undefined,
    }).begin();
    if (recovery.strays.length > 0) kernel.notices.push(noticeOfStrays(recovery.strays.length));
    recovery.swept.then(swept.resolve, swept.reject);
    // Those of now: a fork that is asked for from here on has its own, from which nothing grew yet.
    const forkSnapshots = kernel.state.snapshots.automaticWithTag('fork');
    const recovered = recovery.settled.then(() => settleIn(kernel, rooms, forkSnapshots));
    recovered.catch((error: unknown) => kernel.log.error({ err: error }, 'recovery did not finish'));
    return new Daemon(kernel, rooms, recovered);
  }

  get observeRequest(): MetricsService['observeRequest'] {
    return (call, status, seconds) => this.#rooms.metrics.observeRequest(call, status, seconds);
  }

  /** Through which programs in sandboxes call. */
  get insideDoor(): InsideDoor {
    return this.#rooms.insideDoor;
  }

  /** What this start had to end or to mend, for whoever started it. */
  get notices(): readonly string[] {
    return this.#kernel.notices;
  }

  /** Leaves the sandboxes running; the next daemon finds them. */
  async close(): Promise<void> {
    const { drivers, disks, state, home, pool, log } = this.#kernel;
    await this.#quieten('close');
    this.#rooms.watch.save();
    for (const driver of Object.values(drivers)) await driver.close();
    this.#kernel.registries.close();
    await disks.close();
    await backupOf(state, home)().catch((error: unknown) =>
      log.warn({ err: error }, 'the backup of the database failed; the last one stays'),
    );
    state.close();
    await pool.close();
  }

  /** Ends every sandbox and removes all of the home that is not a plain file; those the caller removes. */
  async purge(): Promise<void> {
    const { drivers, disks, network, gateway, state, pool } = this.#kernel;
    await this.#quieten('destroy');
    await endMachines(drivers);
    await network.purge();
    await gateway.purge();
    for (const driver of Object.values(drivers)) await driver.close();
    this.#kernel.registries.close();
    await disks.close();
    state.close();
    await pool.purge();
  }

  /** From here on nothing happens by itself. */
  async #quieten(ending: Ending): Promise<void> {
    const { ports, warm, sizer, machines, watch, feed, budgetKeeper, runs } = this.#rooms;
    this.#projects.rest();
    this.#rooms.runWatch.close();
    await this.#rooms.guardian.close();
    this.#rooms.insideDoor.close();
    await this.#rooms.races.close();
    await runs.close();
    await this.#rooms.runWebhooks.close();
    await this.#kernel.work.close(ending);
    await this.recovered.catch(() => {});
    await this.#housekeeper.close();
    await this.#projects.close();
    await watch.close();
    await feed.close();
    await budgetKeeper.close();
    await ports.close();
    await warm.close();
    await sizer.close();
    await machines.close();
  }
}

/** What waits until every sandbox is settled. */
async function settleIn({ config }: Kernel, rooms: Rooms, forkSnapshots: readonly string[]): Promise<void> {
  const { ports, snapshots, sizer, images, warm, runs } = rooms;
  await ports.reopen();
  runs.recover();
  rooms.insideDoor.recover();
  rooms.races.recover();
  await rooms.guardian.recover();
  for (const id of forkSnapshots) await snapshots.prune(id);
  await snapshots.pruneAllUndos();
  await snapshots.pruneMerged();
  sizer.addUncounted();
  await images.remember(config.default_image);
  await rooms.forge.sweep();
  warm.refillSoon();
}

function noticeOfStrays(count: number): string {
  const what = count === 1 ? '1 disk or snapshot' : `${count} disks or snapshots`;
  return `The database did not know ${what} of the pool: set aside. \`coppice strays\` lists what there is.`;
}
