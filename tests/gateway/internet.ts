import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const program = fileURLToPath(new URL('./internet-process.ts', import.meta.url));

/** Where the servers are, and the two names of one of them. */
export const server = '198.51.100.1';
/** A port where it sends as many bytes as a line says. */
export const sink = 9000;
export const hostAddress = '203.0.113.2';
/** The side of the link that answers, so that answers come from where they are awaited. */
export const nameServer = '203.0.113.1';

/** A machine's network and an internet beyond it, both in namespaces: the real machine's own has no part in it. */
export class Internet implements AsyncDisposable {
  readonly #host: ChildProcess;
  readonly #servers: ChildProcess;
  readonly #lines: Interface;
  #listener: ChildProcess | undefined;

  /** Whom one has to trust to trust its servers. */
  readonly authority: string;

  private constructor(host: ChildProcess, servers: ChildProcess, authority: string) {
    this.authority = authority;
    this.#host = host;
    this.#servers = servers;
    this.#lines = createInterface({ input: servers.stdout! });
  }

  static async open(
    zone: Readonly<Record<string, string>>,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Internet> {
    const certificate = await selfSigned(Object.keys(zone));
    const host = spawn('unshare', ['--net', '--', 'sleep', '3600'], { stdio: 'ignore' });
    const servers = spawn(
      'unshare',
      ['--net', '--', process.execPath, program, JSON.stringify(certificate)],
      { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env } },
    );
    const internet = new Internet(host, servers, certificate.cert);
    await internet.#ready(host);
    await internet.#ready(servers);
    const ip = (process: ChildProcess, command: string) =>
      run('nsenter', [`--net=/proc/${process.pid}/ns/net`, '--', 'ip', ...command.split(' ')]);
    await ip(host, 'link set dev lo up');
    await ip(servers, 'link set dev lo up');
    await ip(host, `link add uplink type veth peer name uplink netns /proc/${servers.pid}/ns/net`);
    await ip(host, `address add ${hostAddress}/24 dev uplink`);
    await ip(host, 'link set dev uplink up');
    await ip(servers, 'address add 203.0.113.1/24 dev uplink');
    await ip(servers, 'link set dev uplink up');
    await ip(servers, `address add ${server}/32 dev lo`);
    await ip(servers, 'address add 10.7.7.7/32 dev lo');
    await ip(host, 'route add default via 203.0.113.1');
    await internet.#tell(JSON.stringify(zone));
    return internet;
  }

  /** What plays the network of the machine. */
  get host(): string {
    return `/proc/${this.#host.pid}/ns/net`;
  }

  /** Has the machine answer on every address of version 6 that it has, which are returned. */
  async listenOnIpv6(port: number): Promise<string[]> {
    const inside = (...argv: string[]) => [`--net=${this.host}`, '--', ...argv];
    if (this.#listener === undefined) {
      const answer = `require('node:http').createServer((_, answer) => answer.end('over IPv6'))`;
      const program = `${answer}.listen(${port}, '::', () => console.log('ready'))`;
      this.#listener = spawn('nsenter', inside(process.execPath, '-e', program), {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await this.#ready(this.#listener);
      await once(this.#listener.stdout!, 'data');
      // Whoever is let through gets there.
      const { stdout: own } = await run('nsenter', inside('curl', '-sS', '-g', `http://[::1]:${port}/`));
      if (own !== 'over IPv6') throw new Error(`the listener answers ${own}`);
    }
    const { stdout } = await run('nsenter', inside('ip', '-6', '-json', 'address', 'show'));
    const links = JSON.parse(stdout) as { addr_info: { local: string; scope: string }[] }[];
    return links
      .flatMap(({ addr_info: all }) => all)
      .filter(({ scope }) => scope !== 'host')
      .map(({ local }) => local);
  }

  /** Every name that was asked of the name server since the last time. */
  asked(): Promise<string[]> {
    return this.#tell('');
  }

  /** Every request that a server of the web understood since the last time: `HOST METHOD PATH`. */
  hits(): Promise<string[]> {
    return this.#tell('hits');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = [this.#host, this.#servers, this.#listener].flatMap((process) =>
      process === undefined ? [] : [once(process, 'exit')],
    );
    this.#listener?.kill('SIGKILL');
    this.#servers.stdin?.end();
    this.#host.kill('SIGKILL');
    await Promise.all(ended);
  }

  async #tell(line: string): Promise<string[]> {
    const answer = once(this.#lines, 'line');
    this.#servers.stdin?.write(`${line}\n`);
    return JSON.parse(String((await answer)[0]));
  }

  /** Until it is in a namespace of its own. */
  async #ready(process: ChildProcess): Promise<void> {
    const { stdout: ours } = await run('readlink', ['/proc/self/ns/net']);
    for (;;) {
      const { stdout } = await run('readlink', [`/proc/${process.pid}/ns/net`]);
      if (stdout !== ours) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

async function selfSigned(names: readonly string[]): Promise<{ key: string; cert: string }> {
  const { stdout } = await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
    ...['-subj', '/CN=test', '-addext', `subjectAltName=${names.map((name) => `DNS:${name}`).join(',')}`],
    ...['-keyout', '-', '-out', '-'],
  ]);
  const part = (name: string): string =>
    new RegExp(`-----BEGIN ${name}-----[^]*?-----END ${name}-----`).exec(stdout)?.[0] ?? '';
  return { key: part('PRIVATE KEY'), cert: part('CERTIFICATE') };
}
