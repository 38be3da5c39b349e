import { readFileSync, statSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { dirname } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { z } from 'zod';
import { Budgets } from '../budgets/budgets.ts';
import { Outbox } from '../feed/outbox.ts';
import { Ledger } from '../ledger/ledger.ts';
import { type LedgerDatabase, openLedgerFile } from '../ledger/open-ledger-file.ts';
import { Prices } from '../prices/prices.ts';
import { Recordings } from '../recordings/recordings.ts';
import { Scripts } from '../recordings/scripted/scripts.ts';
import type { Secrets } from '../secrets/secrets.ts';
import type { Caller } from './caller.ts';
import { Sightings } from './message-markers.ts';
import { ModelGateway } from './model-gateway.ts';
import { modelsConfigSchema, Upstreams } from './upstreams.ts';

export interface ConfiguredModelsParts {
  /** models.json of the home, written by people. */
  readonly file: string;
  readonly ledgerFile: string;
  readonly secrets: Secrets;
}

const fileSchema = modelsConfigSchema.extend({
  /** What happens to a call of a model that has no price. */
  unknown_models: z.enum(['refuse', 'count']).default('refuse'),
  /** The operator's own prices. */
  prices: z.unknown().optional(),
  /** Keep the answers of upstreams in a directory, or answer from it and ask no upstream. */
  recordings: z
    .strictObject({
      directory: z.string().startsWith('/', 'must be an absolute path'),
      mode: z.enum(['record', 'replay']),
      match: z.enum(['exact', 'order']).default('exact'),
      timing: z.enum(['recorded', 'at-once']).default('at-once'),
    })
    .optional(),
});

const nothing = { upstreams: [] };

/**
 * Models as models.json says. The file is read again when it has changed: calls that run go on as they began. A file that is
 * wrong stops new calls, which say why.
 */
export class ConfiguredModels {
  readonly database: LedgerDatabase;
  readonly budgets: Budgets;
  readonly outbox: Outbox;
  readonly #parts: ConfiguredModelsParts;
  readonly #ledger: Ledger;
  readonly #sightings: Sightings;
  readonly #scripts: Scripts;
  #version = '';
  #gateway: ModelGateway | CoppiceError;

  constructor(parts: ConfiguredModelsParts) {
    this.#parts = parts;
    this.database = openLedgerFile(parts.ledgerFile);
    this.#ledger = new Ledger(this.database);
    this.outbox = new Outbox(this.database);
    this.#ledger.recover((event) => this.outbox.post(event));
    this.budgets = new Budgets(this.database, { emit: (event) => this.outbox.post(event) });
    this.#sightings = new Sightings(this.database);
    this.#scripts = new Scripts(dirname(parts.file));
    this.#gateway = this.#make(nothing);
  }

  async handle(request: IncomingMessage, response: ServerResponse, caller: Caller): Promise<void> {
    this.#refresh();
    if (this.#gateway instanceof ModelGateway) return this.#gateway.handle(request, response, caller);
    response.writeHead(503, { 'content-type': 'application/json' });
    // Every vendor's library shows a message of this form.
    response.end(
      JSON.stringify({ type: 'error', error: { type: 'api_error', message: this.#gateway.message } }),
    );
  }

  close(): void {
    if (this.#gateway instanceof ModelGateway) this.#gateway.close();
    this.database.close();
  }

  #refresh(): void {
    const version = versionOf(this.#parts.file);
    if (version === this.#version) return;
    this.#version = version;
    try {
      const config = version === '' ? nothing : JSON.parse(readFileSync(this.#parts.file, 'utf8'));
      this.#gateway = this.#make(config);
    } catch (error) {
      this.#gateway = new CoppiceError(
        'invalid_argument',
        `models.json of this Coppice is wrong: ${(error as Error).message}`,
      );
    }
  }

  #make(config: unknown): ModelGateway {
    const parsed = fileSchema.safeParse(config);
    if (!parsed.success) throw new Error(z.prettifyError(parsed.error));
    const { unknown_models, prices, recordings, ...models } = parsed.data;
    return new ModelGateway({
      ledger: this.#ledger,
      budgets: this.budgets,
      prices: new Prices({ unknown: unknown_models, ...(prices === undefined ? {} : { file: prices }) }),
      upstreams: new Upstreams(models),
      keyOf: async (name) => this.#parts.secrets.value(name),
      emit: (event) => this.outbox.post(event),
      sightings: this.#sightings,
      scripts: this.#scripts,
      ...(recordings === undefined ? {} : { recordings: new Recordings(recordings) }),
    });
  }
}

/** Another text for another file; empty where there is none. */
function versionOf(file: string): string {
  const stat = statSync(file, { throwIfNoEntry: false });
  return stat === undefined ? '' : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
}
