/**
 * A gateway as a process of its own that kills itself at one step of a call.
 * Arguments: file of the ledger, address of the upstream, step (or `none`). Prints its port, and how many calls it recovered.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type Beginning,
  Budgets,
  Ledger,
  ModelGateway,
  Outbox,
  openLedgerFile,
  Prices,
  type Settlement,
  Sightings,
  Upstreams,
} from '../src/index.ts';

const [file, url, step] = process.argv.slice(2) as [string, string, string];

const dieAt = (here: string): void => {
  if (here === step) process.kill(process.pid, 'SIGKILL');
};

class DyingLedger extends Ledger {
  #written = '';

  override together<T>(work: () => T): T {
    const result = super.together(work);
    dieAt(`after it is ${this.#written}`);
    return result;
  }

  override begin(beginning: Beginning): number {
    dieAt(beginning.attempt === 1 ? 'before it is begun' : 'before it is tried again');
    const id = super.begin(beginning);
    dieAt('while it is begun');
    this.#written = 'begun';
    return id;
  }

  override settle(id: number, settlement: Settlement): void {
    dieAt(settlement.outcome === 'lost' ? 'while it is recovered' : 'before it is settled');
    super.settle(id, settlement);
    if (settlement.outcome !== 'lost') dieAt('while it is settled');
    this.#written = 'settled';
  }
}

const database = openLedgerFile(file);
const ledger = new DyingLedger(database);
const outbox = new Outbox(database);
const recovered = ledger.recover((event) => outbox.post(event));
const gateway = new ModelGateway({
  ledger,
  budgets: new Budgets(database),
  prices: new Prices({ unknown: 'refuse', file: { models: { m: { input: 1, output: 10 } } } }),
  upstreams: new Upstreams({ upstreams: [{ name: 'u', kind: 'anthropic', url, retries: 1 }] }),
  keyOf: async () => 'key',
  emit: (event) => outbox.post(event),
  sightings: new Sightings(database),
});
const server = createServer((request, response) => {
  void gateway.handle(request, response, { sandbox: 'dev', run: 'r' });
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`${JSON.stringify({ port: (server.address() as AddressInfo).port, recovered })}\n`);
});
