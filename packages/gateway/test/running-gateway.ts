import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GatewayEvent } from '@coppice/protocol';
import {
  Budgets,
  type Caller,
  type GatewayLimits,
  Ledger,
  type LedgerDatabase,
  ModelGateway,
  type ModelsConfig,
  openLedgerFile,
  Prices,
  type Recordings,
  type Scripts,
  Sightings,
  Upstreams,
} from '../src/index.ts';

export interface RunningGateway extends AsyncDisposable {
  readonly url: string;
  readonly database: LedgerDatabase;
  readonly ledger: Ledger;
  readonly budgets: Budgets;
  readonly events: GatewayEvent[];
  /** Rows of both tables of the ledger, oldest first. */
  calls(): Record<string, unknown>[];
}

interface Options {
  readonly config: ModelsConfig;
  readonly caller?: Caller;
  readonly unknown?: 'refuse' | 'count';
  readonly priceFile?: unknown;
  readonly limits?: Partial<GatewayLimits>;
  readonly now?: () => number;
  readonly recordings?: Recordings;
  readonly scripts?: Scripts;
}

/** The key that upstreams of tests want; no client of a test ever has it. */
export const realKey = 'sk-real-key-of-the-operator';

/** A gateway on a port of loopback, with a ledger of its own. A header of the request says who calls. */
export async function startGateway(options: Options): Promise<RunningGateway> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-gateway-'));
  const database = openLedgerFile(join(directory, 'ledger.db'));
  const now = options.now ?? Date.now;
  const ledger = new Ledger(database, now);
  const events: GatewayEvent[] = [];
  const budgets = new Budgets(database, { emit: (event) => events.push(event), now });
  const gateway = new ModelGateway({
    ledger,
    budgets,
    prices: new Prices({ unknown: options.unknown ?? 'refuse', file: options.priceFile }),
    upstreams: new Upstreams(options.config),
    now,
    keyOf: async () => realKey,
    emit: (event) => events.push(event),
    sightings: new Sightings(database, now),
    ...(options.recordings === undefined ? {} : { recordings: options.recordings }),
    ...(options.scripts === undefined ? {} : { scripts: options.scripts }),
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  });
  const server = await listen((request, response) => {
    const named = request.headers['x-test-caller'];
    const caller = named === undefined ? (options.caller ?? { sandbox: 'dev' }) : JSON.parse(String(named));
    void gateway.handle(request, response, caller);
  });
  return {
    url: urlOf(server),
    database,
    ledger,
    budgets,
    events,
    calls: () =>
      database
        .prepare('SELECT b.*, s.* FROM begun b LEFT JOIN settled s USING (id) ORDER BY b.id')
        .all() as Record<string, unknown>[],
    async [Symbol.asyncDispose]() {
      await close(server);
      gateway.close();
      database.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export async function listen(listener: RequestListener): Promise<Server> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

export const urlOf = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

export async function close(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
