/**
 * What egress by name costs: 1 GiB straight from a server, and through the gateway, in turns, with the processor time that the gateway took.
 * `scripts/run node bench/gateway/egress.ts [ROUNDS]`, as root: server and gateway have network namespaces of their own.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const gibibyte = 1024 ** 3;
const serverAddress = '203.0.113.1';
const sandboxAddress = '203.0.113.3';
const names = '198.18.0.0/21';
const name = 'big.example.com';
const serverPort = 9000;
const target = 0.6;
const [role = '5', ...rest] = process.argv.slice(2);

const median = (values: readonly number[]): number =>
  values.toSorted((one, other) => one - other)[values.length >> 1]!;

/** Sends 1 GiB to whoever connects. */
function serve(): void {
  const chunk = Buffer.alloc(1024 * 1024, 'x');
  createServer((socket) => {
    let left = gibibyte / chunk.length;
    const more = (): void => {
      while (left > 0) {
        left -= 1;
        if (!socket.write(chunk)) return void socket.once('drain', more);
      }
      socket.end();
    };
    socket.on('error', () => {});
    more();
  }).listen(serverPort, () => console.log('ready'));
}

/** The gateway as it is, with one sandbox that may reach one name. */
async function carry(directory: string): Promise<void> {
  const { Egress } = await import('../../packages/gateway/src/egress/egress.ts');
  const { GatewayState } = await import('../../packages/gateway/src/state.ts');
  const { NameBlock, NameTables } = await import('../../packages/gateway/src/egress/name-table.ts');
  const { Authority } = await import('../../packages/gateway/src/secrets/authority.ts');
  const { keysOfFile } = await import('../../packages/gateway/src/secrets/sealing-keys.ts');
  const { SecretKeeper } = await import('../../packages/gateway/src/secrets/secret-keeper.ts');
  const { Secrets } = await import('../../packages/gateway/src/secrets/secrets.ts');
  const state = new GatewayState(join(directory, 'gateway.db'));
  const secrets = new Secrets(state, keysOfFile(join(directory, 'secrets.key')));
  const authority = Authority.open(join(directory, 'authority.pem'));
  const address = new NameTables(state, new NameBlock(names)).addressOf('sb', name);
  const egress = await Egress.open({
    state,
    names,
    host: '203.0.113.2',
    lookup: async () => [{ address: serverAddress, family: 4 }],
    keeper: new SecretKeeper({ secrets, authority, trust: [] }),
    now: Date.now,
    emit: () => {},
    own: (_request, response) => void response.end(),
  });
  const rule = { pattern: name, ports: [serverPort] };
  egress.set('sb', {
    address: sandboxAddress,
    allow: [rule],
    deny: [],
    blocks: [],
    secrets: [],
    ask: null,
    caller: {},
  });
  const { ports } = await egress.listen([serverPort]);
  console.log(JSON.stringify({ address, port: ports[serverPort] }));
}

/** Reads all of it; prints how many seconds that took for each line that it is told. */
function read(): void {
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { host, port } = JSON.parse(line) as { host: string; port: number };
    const began = performance.now();
    let size = 0;
    const socket = connect({
      host,
      port,
      localAddress: sandboxAddress,
      onread: {
        buffer: Buffer.alloc(1024 * 1024),
        callback: (bytes) => {
          size += bytes;
          return true;
        },
      },
    });
    socket.on('close', () => {
      if (size !== gibibyte) throw new Error(`${size} bytes came`);
      console.log(((performance.now() - began) / 1000).toFixed(4));
    });
  });
}

/** In clock ticks, of which a second has 100. */
const processorSeconds = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};

async function measure(rounds: number): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-egress-'));
  const children: ChildProcess[] = [];
  const inside = (net: ChildProcess | undefined, ...args: string[]): ChildProcess => {
    const command = [process.execPath, import.meta.filename, ...args];
    const into = net === undefined ? ['unshare', '--net'] : ['nsenter', `--net=/proc/${net.pid}/ns/net`];
    const [program = '', ...words] = [...into, '--', ...command];
    const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'inherit'] });
    children.push(child);
    return child;
  };
  const line = async (child: ChildProcess): Promise<string> =>
    String((await once(createInterface({ input: child.stdout! }), 'line'))[0]);
  try {
    const server = inside(undefined, 'serve');
    await line(server);
    const host = spawn('unshare', ['--net', '--', 'sh', '-c', 'echo ready; exec sleep 3600'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(host);
    await line(host);
    const ip = (net: ChildProcess, command: string): void =>
      void execFileSync('nsenter', [`--net=/proc/${net.pid}/ns/net`, '--', 'ip', ...command.split(' ')]);
    ip(host, `link add uplink type veth peer name uplink netns /proc/${server.pid}/ns/net`);
    for (const [net, own] of [
      [host, '203.0.113.2/24'],
      [server, `${serverAddress}/24`],
    ] as const) {
      ip(net, 'link set dev lo up');
      ip(net, `address add ${own} dev uplink`);
      ip(net, 'link set dev uplink up');
    }
    ip(host, `address add ${sandboxAddress}/24 dev uplink`);
    ip(host, `route add local ${names} dev lo`);
    const gateway = inside(host, 'carry', directory);
    const door = JSON.parse(await line(gateway)) as { address: string; port: number };
    const reader = inside(host, 'read');
    const answers = createInterface({ input: reader.stdout! });
    const seconds = async (host: string, port: number): Promise<number> => {
      const answer = once(answers, 'line');
      reader.stdin!.write(`${JSON.stringify({ host, port })}\n`);
      return Number((await answer)[0]);
    };
    const direct: number[] = [];
    const carried: number[] = [];
    const processor: number[] = [];
    for (let round = 0; round <= rounds; round += 1) {
      const straight = await seconds(serverAddress, serverPort);
      const before = processorSeconds(gateway.pid!);
      const through = await seconds(door.address, door.port);
      // The first round is not compiled yet.
      if (round === 0) continue;
      direct.push(straight);
      carried.push(through);
      processor.push(processorSeconds(gateway.pid!) - before);
    }
    const ratio = median(direct) / median(carried);
    console.log(
      `1 GiB, median of ${rounds}: direct ${median(direct).toFixed(2)} s, by name ${median(carried).toFixed(2)} s`,
    );
    console.log(`  the gateway took ${median(processor).toFixed(2)} s of processor time`);
    console.log(`  by name / direct ${ratio.toFixed(2)} × of the speed (target ≥ ${target} ×)`);
    process.exitCode = ratio >= target ? 0 : 1;
  } finally {
    for (const child of children) child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  }
}

if (role === 'serve') serve();
else if (role === 'carry') await carry(rest[0]!);
else if (role === 'read') read();
else await measure(Number(role));
