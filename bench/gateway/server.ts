/** A server of the benchmark as a process of its own. Arguments: `upstream`, or `ours` and the address of the upstream. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Budgets,
  Ledger,
  ModelGateway,
  Outbox,
  openLedgerFile,
  Prices,
  ScriptedUpstream,
  Sightings,
  Upstreams,
} from '@coppice/gateway';

const [kind, upstream] = process.argv.slice(2);

const ready = (url: string): void => {
  process.stdout.write(`${url}\n`);
};

if (kind === 'upstream') {
  // The second step never ends, for streams that are idle.
  const steps = [
    { text: 'Hello world', parts: 4 },
    { text: 'ab', parts: 2, partDelayMs: 600_000 },
  ];
  ready(await new ScriptedUpstream({ steps }).listen());
} else {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-bench-'));
  process.once('SIGTERM', () => {
    rmSync(directory, { recursive: true, force: true });
    process.exit(0);
  });
  const database = openLedgerFile(join(directory, 'ledger.db'));
  // As it is used: with a budget that each call is held against.
  const budgets = new Budgets(database);
  budgets.set({ scope: 'home', micros: 1_000_000_000_000 });
  const outbox = new Outbox(database);
  const gateway = new ModelGateway({
    ledger: new Ledger(database),
    budgets,
    prices: new Prices({ unknown: 'refuse' }),
    upstreams: new Upstreams({ upstreams: [{ name: 'u', kind: 'openai', url: upstream, secret: 's' }] }),
    keyOf: async () => 'key',
    sightings: new Sightings(database),
    emit: (event) => outbox.post(event),
    limits: { callsAtOncePerSandbox: 2_000 },
  });
  const server = createServer((request, response) => {
    void gateway.handle(request, response, { sandbox: 'dev' });
  });
  server.listen(0, '127.0.0.1', () => ready(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
}
