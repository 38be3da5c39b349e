import { execFile, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, rmSync } from 'node:fs';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import {
  type Caller,
  CoppiceError,
  gatewayPageSchema,
  isErrorCode,
  type NetworkConnection,
  networkConnectionSchema,
  type Question,
  questionSchema,
  webPorts,
} from '@coppice/protocol';
import {
  atSocket,
  type NameDoors,
  type NameGateway,
  type NamePlace,
  type NetworkPolicy,
} from '@coppice/runtime';
import { z } from 'zod';
import type { FeedPosition } from '../db/gateway-table.ts';
import type { Log } from '../host/log.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import { handOver } from './gateway-user.ts';

export interface GatewayOptions {
  readonly program: string;
  /** Where the gateway keeps what it knows; only root looks inside. */
  readonly directory: string;
  readonly version: string;
  /** Where it writes what it complains about. Not in its directory, where it could put a link to another file of root. */
  readonly logFile: string;
  /** The user and group that it runs as. */
  readonly id: number;
  /** Prints the key that secrets are sealed with; null: the key is a file of the gateway. */
  readonly keyCommand: readonly string[] | null;
  /** Name servers to ask instead of the machine's own resolver. */
  readonly resolvers: readonly string[];
  /** Files with authorities that servers are held to, besides the well-known ones. */
  readonly authorities: readonly string[];
  /** How long a connection waits for somebody to allow it. */
  readonly askTimeoutS: number;
  /** For whom the calls of a sandbox to models count, as it is written down. */
  readonly callerOf: (sandboxId: string) => Caller;
  readonly log: Log;
}

export type GatewayPage = z.output<typeof gatewayPageSchema>;

type GatewayPlace = Omit<NamePlace, 'address'>;

interface Health {
  readonly version: string;
  readonly pid: number;
  readonly names: string;
  readonly sandboxes: readonly string[];
  readonly connections?: number;
}

const answerMs = 60_000;
const startMs = 30_000;
const keyCommandMs = 30_000;

/**
 * The gateway is a process of its own, so that no stream through it ends with the daemon. It is started when the first policy names a
 * name, is found again by later daemons, and stays until the home is purged.
 */
export class GatewayProcess implements NameGateway {
  readonly #options: GatewayOptions;
  #place: GatewayPlace | undefined;
  #starting: Promise<void> | undefined;
  /** Those that the gateway holds to names; undefined until it was asked. */
  #admitted: Set<string> | undefined;
  /** What is told of one sandbox is told in the order in which it was written down. */
  readonly #telling = new KeyedLock();

  constructor(options: GatewayOptions) {
    this.#options = options;
  }

  async admit(sandboxId: string, place: NamePlace, policy: NetworkPolicy): Promise<NameDoors> {
    await this.#ready(place);
    const asks = policy.asks === true;
    const ports = [...new Set([...policy.names.flatMap(({ ports }) => ports), ...(asks ? webPorts : [])])];
    await this.#telling.exclusive(sandboxId, async () => {
      await this.#call('PUT', `/sandboxes/${sandboxId}`, {
        address: place.address,
        allow: policy.names,
        deny: policy.deniedNames,
        blocks: policy.allow,
        secrets: policy.secrets ?? [],
        ask: asks ? { within_ms: this.#options.askTimeoutS * 1000 } : null,
        caller: this.#options.callerOf(sandboxId),
      });
      this.#admitted?.add(sandboxId);
    });
    const doors = await this.#call<{ dns: number; ports: Record<string, number> }>('POST', '/listen', {
      ports,
    });
    return {
      dns: doors.dns,
      ports: new Map(Object.entries(doors.ports).map(([port, door]) => [Number(port), door])),
    };
  }

  /** After it was written down for whom the calls of a sandbox count. One that is not admitted yet is told then. */
  async tellCaller(sandboxId: string): Promise<void> {
    await this.#telling.exclusive(sandboxId, async () => {
      if ((await this.#health()) === undefined) return;
      await this.#call('PUT', `/sandboxes/${sandboxId}/caller`, this.#options.callerOf(sandboxId));
    });
  }

  /** Ends every connection of a sandbox through the gateway; it may make new ones. Memory with open connections cannot be kept. */
  async cut(sandboxId: string): Promise<void> {
    if ((await this.#health()) !== undefined) await this.#call('POST', `/sandboxes/${sandboxId}/cut`, {});
  }

  /** What it tells after that position; undefined where it does not run. */
  async events(
    { epoch, seq }: FeedPosition,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<GatewayPage | undefined> {
    if ((await this.#health()) === undefined) return undefined;
    const path = `/events?epoch=${epoch}&after=${seq}&limit=500&wait_ms=${waitMs}`;
    return gatewayPageSchema.parse(await this.#call('GET', path, undefined, signal));
  }

  async dismiss(sandboxId: string): Promise<void> {
    if (this.#admitted === undefined) {
      const health = await this.#health();
      // Not running: it holds nobody, and what it wrote down is replaced when somebody is admitted at that address again.
      if (health === undefined) return;
      this.#admitted = new Set(health.sandboxes);
    }
    if (!this.#admitted.has(sandboxId)) return;
    await this.#call('DELETE', `/sandboxes/${sandboxId}`);
    this.#admitted.delete(sandboxId);
  }

  async retain(keep: ReadonlySet<string>): Promise<void> {
    const health = await this.#health();
    for (const id of health?.sandboxes ?? []) if (!keep.has(id)) await this.dismiss(id);
  }

  /** Starts the gateway again where it died. True: what leads to it has to be applied again. */
  async tend(): Promise<boolean> {
    const { log, version } = this.#options;
    if (this.#place === undefined) return false;
    const health = await this.#health();
    // One of another version is replaced once nothing goes through it.
    const isStale = health !== undefined && health.version !== version && (health.connections ?? 0) === 0;
    if (health !== undefined && !isStale) return false;
    const place = this.#place;
    if (isStale) await this.#end(health.pid);
    log.warn(
      {},
      isStale ? 'the gateway of another version is replaced' : 'the gateway died and is started again',
    );
    await this.#ready(place);
    return true;
  }

  /** What a sandbox reached by name and what was refused to it; where there is nothing yet, the first that comes in that time. */
  async connections(
    sandboxId: string,
    query: { readonly after: number; readonly limit: number; readonly waitMs: number },
    signal?: AbortSignal,
  ): Promise<NetworkConnection[]> {
    if ((await this.#health()) === undefined) return [];
    const { after, limit, waitMs } = query;
    const path = `/sandboxes/${sandboxId}/connections?after=${after}&limit=${limit}&wait_ms=${waitMs}`;
    const { connections } = await this.#call<{ connections: unknown }>('GET', path, undefined, signal);
    return z.array(networkConnectionSchema).parse(connections);
  }

  /** What a sandbox wants to reach and nobody has answered yet. */
  async questions(sandboxId: string): Promise<Question[]> {
    if ((await this.#health()) === undefined) return [];
    const { items } = await this.#call<{ items: unknown }>('GET', `/sandboxes/${sandboxId}/questions`);
    return z.array(questionSchema).parse(items);
  }

  /** Settles the connections that wait. False where nobody asks that any more. */
  async settle(
    sandboxId: string,
    place: { readonly name: string; readonly port: number },
    answer: 'once' | 'refuse',
  ): Promise<boolean> {
    const body = { name: place.name, port: place.port, answer };
    return (await this.#call<{ found: boolean }>('POST', `/sandboxes/${sandboxId}/questions`, body)).found;
  }

  /** Asks the gateway something, after starting it where it does not run. */
  async ask<T>(
    place: GatewayPlace,
    method: string,
    path: string,
    body?: object,
    signal?: AbortSignal,
  ): Promise<T> {
    await this.#ready(place);
    return this.#call<T>(method, path, body, signal);
  }

  /** Passes a request on as it comes, and its answer back, however long they are. */
  async relay(
    place: GatewayPlace,
    path: string,
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    more: Readonly<Record<string, string>>,
  ): Promise<void> {
    await this.#ready(place);
    const answer = await atSocket(
      this.#socket,
      (socketPath) =>
        new Promise<IncomingMessage>((resolve, reject) => {
          const { host: _, ...headers } = incoming.headers;
          const call = request(
            { socketPath, method: incoming.method, path, headers: { ...headers, ...more }, agent: false },
            resolve,
          );
          call.once('error', reject);
          pipeline(incoming, call).catch(reject);
        }),
    );
    const { connection: _, ...headers } = answer.headers;
    outgoing.writeHead(answer.statusCode ?? 502, headers);
    await pipeline(answer, outgoing);
  }

  /** Seals every secret anew: with a fresh key file, or with what the command prints now. */
  async rekey(place: GatewayPlace): Promise<void> {
    await this.#ready(place);
    await this.#call('POST', '/rekey', { keys: await this.#printedKeys() });
  }

  /** Empty where no command is configured. What it prints is in no message. */
  async #printedKeys(): Promise<string> {
    const [program, ...args] = this.#options.keyCommand ?? [];
    if (program === undefined) return '';
    try {
      const limits = { timeout: keyCommandMs, maxBuffer: 65_536, killSignal: 'SIGKILL' } as const;
      const { stdout } = await promisify(execFile)(program, args, limits);
      if (stdout.trim() !== '') return stdout;
    } catch (error) {
      const { code, signal } = error as { code?: number | string; signal?: string };
      throw keyCommandFailed(`ended with ${signal ?? code}`);
    }
    throw keyCommandFailed('printed nothing');
  }

  /** Whether it was ever started. */
  get isUsed(): boolean {
    return existsSync(this.#options.directory);
  }

  /** Ends the gateway and every stream through it. */
  async purge(): Promise<void> {
    const health = await this.#health();
    if (health !== undefined) await this.#end(health.pid);
    rmSync(this.#options.directory, { recursive: true, force: true });
  }

  async #ready(place: GatewayPlace): Promise<void> {
    if (this.#place?.names === place.names && (await this.#health()) !== undefined) return;
    this.#starting ??= this.#start(place).finally(() => {
      this.#starting = undefined;
    });
    await this.#starting;
  }

  async #start(place: GatewayPlace): Promise<void> {
    const { program, directory, logFile, id, version, resolvers, authorities, log } = this.#options;
    const found = await this.#health();
    if (found !== undefined && found.names === place.names) {
      this.#take(found, place);
      return;
    }
    // Another block of names: addresses were handed out anew, which happens only while nobody has one.
    if (found !== undefined) await this.#end(found.pid);
    const keys = await this.#printedKeys();
    handOver(directory, id);
    const trust = authorities.map((file) => readFileSync(file, 'utf8'));
    const settings = { version, names: place.names, host: place.host, resolvers, trust, id };
    const complaints = openSync(logFile, 'a', 0o600);
    // It reads bytes from strangers, so it becomes a user without any right before it reads the first; it needs two rights to do so.
    const least = ['--no-new-privs', '--bounding-set=-all,+setuid,+setgid', '--inh-caps=-all', '--'];
    const command = [...least, process.execPath, program, JSON.stringify(settings)];
    const child = spawn('setpriv', command, {
      cwd: directory,
      detached: true,
      stdio: ['pipe', 'pipe', complaints],
      env: { PATH: process.env.PATH, UV_THREADPOOL_SIZE: '32' },
    });
    closeSync(complaints);
    child.stdin?.on('error', () => {});
    child.stdin?.end(keys);
    await new Promise<void>((resolve, reject) => {
      const failed = (why: string) => {
        clearTimeout(timer);
        child.kill('SIGKILL');
        reject(
          new CoppiceError('unavailable', `the gateway did not start: ${why}`, {
            hint: `Look into ${logFile}.`,
          }),
        );
      };
      const timer = setTimeout(() => failed('it said nothing for half a minute'), startMs);
      child.once('error', (error) => failed(error.message));
      child.once('exit', (code, signal) => failed(`it ended with ${signal ?? code}`));
      child.stdout?.once('data', () => {
        clearTimeout(timer);
        resolve();
      });
    });
    child.stdout?.destroy();
    child.unref();
    const health = await this.#health();
    if (health === undefined)
      throw new CoppiceError('unavailable', 'the gateway started and does not answer');
    log.info({ pid: health.pid }, 'the gateway was started');
    this.#take(health, place);
  }

  #take(health: Health, place: GatewayPlace): void {
    this.#place = place;
    this.#admitted = new Set(health.sandboxes);
  }

  async #health(): Promise<Health | undefined> {
    if (!existsSync(this.#socket)) return undefined;
    try {
      return await this.#call<Health>('GET', '/health');
    } catch (error) {
      const cause = (error as Error).cause as NodeJS.ErrnoException | undefined;
      if (cause?.code === 'ECONNREFUSED' || cause?.code === 'ENOENT') return undefined;
      throw error;
    }
  }

  async #end(pid: number): Promise<void> {
    await this.#call('POST', '/end', {});
    const deadline = Date.now() + answerMs;
    while (existsSync(`/proc/${pid}`) && Date.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 10));
    this.#admitted = undefined;
    this.#place = undefined;
  }

  get #socket(): string {
    return join(this.#options.directory, 'control.sock');
  }

  async #call<T>(method: string, path: string, body?: object, caller?: AbortSignal): Promise<T> {
    const timeout = AbortSignal.timeout(answerMs);
    const signal = caller === undefined ? timeout : AbortSignal.any([caller, timeout]);
    const response = await this.#send(method, path, body, signal);
    const chunks: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
    const answer = JSON.parse(Buffer.concat(chunks).toString('utf8')) as T & {
      code?: string;
      message?: string;
    };
    if (response.statusCode === 200) return answer;
    const code = answer.code !== undefined && isErrorCode(answer.code) ? answer.code : 'internal';
    throw new CoppiceError(code, `the gateway: ${answer.message}`);
  }

  #send(
    method: string,
    path: string,
    body: object | undefined,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const send = (socketPath: string) =>
      new Promise<IncomingMessage>((resolve, reject) => {
        const text = body === undefined ? '' : JSON.stringify(body);
        const headers = { 'content-length': Buffer.byteLength(text) };
        const call = request({ socketPath, method, path, headers, signal, agent: false }, resolve);
        call.once('error', (cause) =>
          reject(
            new CoppiceError('unavailable', `the gateway does not answer: ${cause.message}`, {
              hint: 'Change the policy again to start it: coppice net NAME --allow ...',
              cause,
            }),
          ),
        );
        call.end(text);
      });
    return atSocket(this.#socket, send);
  }
}

const keyCommandFailed = (why: string): CoppiceError =>
  new CoppiceError('unavailable', `the command of the key of secrets ${why}`, {
    hint: 'See gateway.key_command in config.json. It must print the key within 30 seconds.',
  });
