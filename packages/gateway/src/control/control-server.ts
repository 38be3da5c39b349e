import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { CoppiceError, callerSchema, setSecretSchema } from '@coppice/protocol';
import { z } from 'zod';
import type { BudgetInput, BudgetKey } from '../budgets/budget.ts';
import type { Egress } from '../egress/egress.ts';
import { egressPolicySchema } from '../egress/policies.ts';
import type { ForgeRelay } from '../forges/forge-relay.ts';
import { type CostQuery, costs } from '../ledger/costs.ts';
import type { ConfiguredModels } from '../models/configured-models.ts';
import type { Secrets } from '../secrets/secrets.ts';

export interface ControlParts {
  readonly egress: Egress;
  readonly models: ConfiguredModels;
  readonly secrets: Secrets;
  readonly forges: ForgeRelay;
  /** With what the command of the key printed; empty: with a fresh key file. */
  readonly rekey: (printedKeys: string) => void;
  /** What a sandbox that may use these secrets trusts, and for which hosts. */
  readonly trustFor: (secrets: readonly string[]) => { certificate: string; hosts: readonly string[] };
  readonly version: string;
  /** The block of addresses that stand for names here. */
  readonly names: string;
  /** Ends the process. */
  readonly end: () => void;
}

const largestBody = 4 * 1024 * 1024;
const portsSchema = z.strictObject({ ports: z.array(z.int().min(1).max(65535)).max(1024) });
const pageSchema = z.strictObject({
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  wait_ms: z.coerce.number().int().min(0).max(30_000).default(0),
});

const rekeySchema = z.strictObject({ keys: z.string().max(65_536) });
const answerSchema = z.strictObject({
  name: z.string(),
  port: z.int(),
  answer: z.enum(['once', 'refuse']),
});

const feedSchema = pageSchema.extend({ epoch: z.string().max(64) });

/** What the daemon asks of the gateway, at a socket that only root opens. */
export class ControlServer {
  readonly #parts: ControlParts;
  readonly #server: Server;

  constructor(parts: ControlParts) {
    this.#parts = parts;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => fail(response, error));
    });
  }

  listen(path: string): Promise<void> {
    rmSync(path, { force: true });
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(path, () => {
        chmodSync(path, 0o600);
        resolve();
      });
    });
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { egress, models, secrets, forges, version, names, end } = this.#parts;
    const url = new URL(request.url ?? '/', 'http://gateway');
    const [, subject, id, part] = url.pathname.split('/');
    const call = `${request.method} ${subject}${id === undefined ? '' : '/:id'}${part === undefined ? '' : `/${part}`}`;
    switch (call) {
      case 'GET health':
        return json(response, {
          version,
          pid: process.pid,
          names,
          sandboxes: egress.sandboxes,
          connections: egress.openConnections,
        });
      case 'POST listen':
        return json(response, await egress.listen(portsSchema.parse(await bodyOf(request)).ports));
      case 'PUT sandboxes/:id':
        egress.set(id ?? '', egressPolicySchema.parse(await bodyOf(request)));
        return json(response, {});
      case 'DELETE sandboxes/:id':
        egress.remove(id ?? '');
        return json(response, {});
      case 'PUT sandboxes/:id/caller':
        egress.setCaller(id ?? '', callerSchema.parse(await bodyOf(request)));
        return json(response, {});
      case 'POST sandboxes/:id/cut':
        egress.cut(id ?? '');
        return json(response, {});
      case 'GET events': {
        const { limit, wait_ms, ...position } = feedSchema.parse(Object.fromEntries(url.searchParams));
        return json(response, await models.outbox.next(position, limit, wait_ms, request.socket));
      }
      case 'GET sandboxes/:id/connections':
        return json(response, await this.#connections(request, id ?? '', url.searchParams));
      case 'GET sandboxes/:id/questions':
        return json(response, { items: egress.questions.list(id ?? '') });
      case 'POST sandboxes/:id/questions': {
        const { name, port, answer } = answerSchema.parse(await bodyOf(request));
        const found = egress.questions.answer({ sandbox: id ?? '', name, port }, answer);
        return json(response, { found });
      }
      case 'PUT secrets/:id':
        return json(response, setSecret(secrets, id ?? '', await bodyOf(request)));
      case 'GET forges':
        return json(response, { items: forges.ids() });
      case 'PUT forges/:id':
        forges.set(id ?? '', await bodyOf(request));
        return json(response, {});
      case 'DELETE forges/:id':
        forges.remove(id ?? '');
        return json(response, {});
      case 'POST forges/:id/call':
        return json(response, await forges.call(id ?? '', await bodyOf(request)));
      case 'GET forges/:id/git':
      case 'POST forges/:id/git':
        return forges.git(id ?? '', request, response, (request.url ?? '').slice(`/forges/${id}/git`.length));
      case 'POST rekey':
        this.#parts.rekey(rekeySchema.parse(await bodyOf(request)).keys);
        return json(response, {});
      case 'GET authority':
        return json(response, this.#parts.trustFor(url.searchParams.getAll('secret')));
      case 'GET secrets':
        return json(response, { items: secrets.list() });
      case 'DELETE secrets/:id':
        secrets.remove(id ?? '');
        return json(response, {});
      case 'POST costs':
        return json(response, snakeCase(costs(models.database, (await bodyOf(request)) as CostQuery)));
      case 'POST budgets':
        return json(response, snakeCase(models.budgets.set((await bodyOf(request)) as BudgetInput)));
      case 'GET budgets':
        return json(response, snakeCase({ items: models.budgets.list() }));
      case 'DELETE budgets':
        return json(response, { removed: models.budgets.remove((await bodyOf(request)) as BudgetKey) });
      case 'POST end':
        json(response, {});
        return end();
      default:
        throw new CoppiceError('not_found', `the gateway has no call ${call}`);
    }
  }

  /** Those after a number; where there are none yet, the first that comes while somebody waits. */
  async #connections(request: IncomingMessage, sandbox: string, params: URLSearchParams): Promise<object> {
    const { records } = this.#parts.egress;
    const { after, limit, wait_ms } = pageSchema.parse(Object.fromEntries(params));
    const found = records.list(sandbox, after, limit);
    if (found.length > 0 || wait_ms === 0) return { connections: found };
    await records.next(sandbox, wait_ms, request.socket);
    return { connections: records.list(sandbox, after, limit) };
  }
}

const setSecret = (secrets: Secrets, name: string, body: unknown): object => {
  const { value, use } = setSecretSchema.parse(body);
  secrets.set(name, value, use);
  return {};
};

/** As the API writes names. */
function snakeCase(value: object): object {
  return JSON.parse(JSON.stringify(value), (_key, each) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(
          Object.entries(each).map(([name, inner]) => [
            name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
            inner,
          ]),
        )
      : each,
  );
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > largestBody) throw new CoppiceError('too_large', 'the body is too large');
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

const json = (response: ServerResponse, body: object, status = 200): void => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
};

function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent) return void response.destroy();
  const known = error instanceof CoppiceError ? error : undefined;
  const invalid = error instanceof z.ZodError || error instanceof SyntaxError;
  const code = known?.code ?? (invalid ? 'invalid_argument' : 'internal');
  json(response, { code, message: (error as Error).message }, code === 'internal' ? 500 : 400);
}
