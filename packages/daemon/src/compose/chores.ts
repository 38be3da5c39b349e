import { backupOf } from '../db/backup.ts';
import { Housekeeper } from '../host/housekeeper.ts';
import type { Kernel } from './kernel.ts';
import type { Rooms } from './rooms.ts';

const saveActivityMs = 1_000;
const tendSpaceMs = 100;
const reviewLimitsMs = 5_000;
const tendGatewayMs = 2_000;
const backupMs = 30_000;
const pruneEventsMs = 2_000;

/** What is done again and again while the daemon runs. */
export function startChores(
  { log, state, pool, disks, gateway, home, config, now }: Kernel,
  rooms: Rooms,
): Housekeeper {
  const housekeeper = new Housekeeper(log);
  const bounds = { kept: config.limits.events_kept, days: config.limits.events_days };
  housekeeper.keep({
    what: 'looking for idle sandboxes',
    everyMs: saveActivityMs,
    work: async () => rooms.watch.look(),
  });
  housekeeper.keep({
    what: 'keeping room for the pool and the database',
    everyMs: tendSpaceMs,
    work: async () => {
      await home.reserve.refill((file, bytes) => pool.server.call('space-reserve', file, String(bytes)));
      await pool.space.tend();
    },
  });
  housekeeper.keep({
    what: 'reviewing disk limits',
    everyMs: reviewLimitsMs,
    work: () => disks.reviewLimits(),
  });
  housekeeper.keep({
    what: 'removing old events',
    everyMs: pruneEventsMs,
    work: () => rooms.events.prune(bounds, now()),
  });
  housekeeper.keep({
    what: 'looking after the gateway',
    everyMs: tendGatewayMs,
    work: async () => {
      if (await gateway.tend()) await rooms.networks.applyAgain();
    },
  });
  housekeeper.keep({ what: 'the backup of the database', everyMs: backupMs, work: backupOf(state, home) });
  return housekeeper;
}
