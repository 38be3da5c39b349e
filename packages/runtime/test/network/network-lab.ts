import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { homeKey } from '@coppice/testkit';
import { NftNetwork } from '../../src/network/nft-network.ts';

const run = promisify(execFile);
const peerProgram = fileURLToPath(new URL('./peer-process.ts', import.meta.url));

/** Long enough for any answer that comes; only a lost one waits for it. */
const answerMs = 60_000;
/** How long a refusal by silence is waited for. Too short would pass as refused, never fail. */
const silenceMs = 1_000;

/** A network namespace and a process in it. */
export class Peer {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: string) => void>();
  #lastId = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const { id, answer } = JSON.parse(line) as { id: number; answer: string };
      this.#waiting.get(id)?.(answer);
      this.#waiting.delete(id);
    });
    child.on('exit', () => {
      for (const settle of this.#waiting.values()) settle('the peer is gone');
    });
  }

  /** In a namespace of its own, or in one that exists. */
  static async start(netns?: string): Promise<Peer> {
    const enter = netns === undefined ? ['unshare', '--net'] : ['nsenter', `--net=${netns}`];
    const child = spawn(enter[0]!, [enter[1]!, '--', process.execPath, peerProgram], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const peer = new Peer(child);
    await new Promise<string>((resolve) => peer.#waiting.set(0, resolve));
    await peer.ip('link set dev lo up');
    return peer;
  }

  get netns(): string {
    return `/proc/${this.#child.pid}/ns/net`;
  }

  async run(program: string, ...args: string[]): Promise<string> {
    const { stdout } = await run('nsenter', [`--net=${this.netns}`, '--', program, ...args]);
    return stdout;
  }

  async ip(command: string): Promise<void> {
    await this.run('ip', ...command.split(' '));
  }

  async listen(...ports: number[]): Promise<void> {
    for (const port of ports) {
      const answer = await this.#ask({ action: 'listen', port }).answer;
      if (answer !== 'listening') throw new Error(answer);
    }
  }

  /** What the server said; for connections that must come about. */
  reach(host: string, port: number, from?: string): Promise<string> {
    return this.#ask({ action: 'connect', host, port, from, timeoutMs: answerMs }).answer;
  }

  /** `refused` or `silence`; for connections that must not. */
  tryReach(host: string, port: number, from?: string): Promise<string> {
    return this.#ask({ action: 'connect', host, port, from, timeoutMs: silenceMs }).answer;
  }

  collectDatagrams(port: number): Promise<string> {
    return this.#ask({ action: 'collect', port }).answer;
  }

  sendDatagram(host: string, port: number, text: string, from: string): Promise<string> {
    return this.#ask({ action: 'send', host, port, text, from }).answer;
  }

  /** All that came, once `text` is among it. */
  datagramsUntil(text: string): Promise<string> {
    return this.#ask({ action: 'collected', text }).answer;
  }

  /** A connection that stays open. */
  async open(host: string, port: number): Promise<{ say(timeoutMs?: number): Promise<string> }> {
    const { id, answer } = this.#ask({ action: 'connect', host, port, timeoutMs: answerMs });
    const first = await answer;
    if (!first.startsWith('hello')) throw new Error(`${host}:${port} did not answer: ${first}`);
    return {
      say: (timeoutMs = answerMs) => this.#ask({ action: 'say', connection: id, timeoutMs }).answer,
    };
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await ended;
  }

  #ask(request: object): { id: number; answer: Promise<string> } {
    this.#lastId += 1;
    const id = this.#lastId;
    const answer = new Promise<string>((resolve) => this.#waiting.set(id, resolve));
    this.#child.stdin!.write(`${JSON.stringify({ id, ...request })}\n`);
    return { id, answer };
  }
}

export const silence = silenceMs;

/** A host with a default route to an internet, all in namespaces: the machine's own network has no part in it. */
export class NetworkLab {
  static readonly server = '198.51.100.1';
  static readonly otherServer = '198.51.100.2';
  static readonly privateServer = '192.168.77.1';
  static readonly metadataServer = '169.254.169.254';
  static readonly hostAddress = '203.0.113.2';

  readonly host: Peer;
  readonly internet: Peer;
  readonly #directory: string;
  readonly #homes: string[] = [];
  readonly #sandboxes: Peer[] = [];
  readonly #networks: NftNetwork[] = [];

  private constructor(host: Peer, internet: Peer, directory: string) {
    this.host = host;
    this.internet = internet;
    this.#directory = directory;
  }

  static async open(): Promise<NetworkLab> {
    const [host, internet] = await Promise.all([Peer.start(), Peer.start()]);
    await host.ip(`link add uplink type veth peer name uplink netns ${internet.netns}`);
    await host.ip(`address add ${NetworkLab.hostAddress}/24 dev uplink`);
    await host.ip('link set dev uplink up');
    await internet.ip('address add 203.0.113.1/24 dev uplink');
    await internet.ip('link set dev uplink up');
    for (const address of [
      NetworkLab.server,
      NetworkLab.otherServer,
      NetworkLab.privateServer,
      NetworkLab.metadataServer,
    ]) {
      await internet.ip(`address add ${address}/32 dev lo`);
    }
    await host.ip('route add default via 203.0.113.1');
    await internet.listen(80, 443, 8080);
    await host.listen(7000, 7001);
    return new NetworkLab(host, internet, await mkdtemp(join(tmpdir(), 'coppice-network-')));
  }

  /** By a directory of its own, as that of a home is, so that a test run knows whose leftovers are whose. */
  async newHomeKey(): Promise<string> {
    const home = await mkdtemp(join(tmpdir(), 'coppice-network-home-'));
    this.#homes.push(home);
    return homeKey(home);
  }

  /** The network of a new home; `file` opens that of an earlier one again. */
  async network(key?: string): Promise<{ network: NftNetwork; homeKey: string; file: string }> {
    const homeKey = key ?? (await this.newHomeKey());
    const file = join(this.#directory, `${homeKey}.json`);
    const network = await NftNetwork.open({ homeKey, file, hostNetns: this.host.netns });
    this.#networks.push(network);
    return { network, homeKey, file };
  }

  async sandbox(netns?: string): Promise<Peer> {
    const peer = await Peer.start(netns);
    this.#sandboxes.push(peer);
    return peer;
  }

  /** Names of links and chains on the host that belong to a home. */
  async remains(homeKey: string): Promise<{ links: string[]; rules: string }> {
    const links = JSON.parse(await this.host.run('ip', '-json', 'link', 'show')) as { ifname: string }[];
    const tables = await this.host.run('nft', 'list', 'tables');
    const table = `coppice_${homeKey}`;
    return {
      links: links.map(({ ifname }) => ifname).filter((name) => name.startsWith(`cp${homeKey}`)),
      rules: tables.includes(table) ? await this.host.run('nft', 'list', 'table', 'inet', table) : '',
    };
  }

  async close(): Promise<void> {
    for (const network of this.#networks) await network.purge();
    for (const peer of [...this.#sandboxes, this.host, this.internet]) await peer.end();
    for (const directory of [this.#directory, ...this.#homes])
      await rm(directory, { recursive: true, force: true });
  }
}
