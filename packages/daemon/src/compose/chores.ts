import { backupOf } from '../db/backup.ts';
import { Housekeeper } from '../host/housekeeper.ts';
import type { ProjectsRoom } from '../projects/projects-room.ts';
import type { Kernel } from './kernel.ts';
import type { Rooms } from './rooms.ts';

const saveActivityMs = 1_000;
const tendSpaceMs = 100;
const reviewLimitsMs = 5_000;
const tendGatewayMs = 2_000;
const keepBudgetsMs = 2_000;
const tendProjectsMs = 250;
const pruneProjectsMs = 5_000;
const backupMs = 30_000;
const askDriversMs = 300_000;
const guardianTickMs = 5_000;
const postEventsMs = 500;
const pruneEventsMs = 2_000;
const prunePageSessionsMs = 60_000;

/** What is done again and again while the daemon runs. */
export function startChores(
  { log, state, pool, disks, gateway, home, config, now }: Kernel,
  rooms: Rooms,
  projects: ProjectsRoom,
  recovered: Promise<void>,
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
  recovered
    .then(() => rooms.memory.learn())
    .catch((error: unknown) => log.warn({ err: error }, 'drivers did not say whether they keep memory'));
  housekeeper.keep({
    what: 'asking drivers whether they keep memory',
    everyMs: askDriversMs,
    work: () => rooms.memory.learn(),
  });
  housekeeper.keep({
    what: 'removing old events',
    everyMs: pruneEventsMs,
    work: () => rooms.events.prune(bounds, now()),
  });
  housekeeper.keep({
    what: 'forgetting sign-ins that have ended',
    everyMs: prunePageSessionsMs,
    work: async () => rooms.pageSessions.prune(),
  });
  housekeeper.keep({
    what: 'looking after the gateway',
    everyMs: tendGatewayMs,
    work: async () => {
      if (await gateway.tend()) await rooms.networks.applyAgain();
    },
  });
  housekeeper.keep({
    what: 'ending sandboxes whose budget is used up',
    everyMs: keepBudgetsMs,
    work: () => rooms.budgetKeeper.look(),
  });
  housekeeper.keep({
    what: 'watching runs',
    everyMs: Math.min(1000, config.run_health.interval_s * 1000),
    work: () => rooms.runWatch.look(),
  });
  housekeeper.keep({
    what: 'posting events of runs',
    everyMs: postEventsMs,
    work: async () => rooms.runWebhooks.look(),
  });
  housekeeper.keep({
    what: 'keeping an eye on the time that runs take',
    everyMs: guardianTickMs,
    work: async () => rooms.guardian.lookAtAll(),
  });
  housekeeper.keep({ what: 'the backup of the database', everyMs: backupMs, work: backupOf(state, home) });
  housekeeper.keep({
    what: 'looking after projects',
    everyMs: tendProjectsMs,
    work: async () => {
      await recovered;
      await projects.tend();
    },
  });
  housekeeper.keep({
    what: 'sending news of projects',
    everyMs: tendProjectsMs,
    work: async () => projects.notifier.send(),
  });
  housekeeper.keep({
    what: 'removing what projects need no more',
    everyMs: pruneProjectsMs,
    work: async () => {
      await recovered;
      await projects.prune();
    },
  });
  return housekeeper;
}
