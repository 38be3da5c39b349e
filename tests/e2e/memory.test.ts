import { readdirSync, readFileSync } from 'node:fs';
import { get } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { CoppiceError, type Sandbox } from '@coppice/sdk';
import { describeWithMemory, eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { collect, streamOf } from './transfer/export-bytes.ts';

const httpGet = (port: number): Promise<string> =>
  new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve(text));
      response.on('error', reject);
    }).on('error', reject);
  });

/** Processes of the host that belong to a sandbox, by the cgroup they are in; dead ones that nobody has reaped yet are none. */
const processesOf = (id: string): string[] =>
  readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const isDead = /^State:\s+[ZX]/m.test(readFileSync(`/proc/${name}/status`, 'latin1'));
      return !isDead && readFileSync(`/proc/${name}/cgroup`, 'latin1').includes(id);
    } catch {
      return false;
    }
  });

const counterServer = `
import http.server, os
n = 0
token = os.urandom(8).hex()
class H(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    global n
    n += 1
    body = f"{n} {token}".encode()
    self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
  def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`;

/** Tries to reach a port of the host all the time, and says each time whether it did. */
const knocker = `
import socket, sys, time
while True:
  try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.2).close()
    print("through", flush=True)
  except OSError:
    print("held", flush=True)
  time.sleep(0.1)
`;

/** Is traced by its child for ever, so that nobody else can trace it. */
const traced = `
import ctypes, os, time
parent = os.getpid()
libc = ctypes.CDLL(None)
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
if os.fork() == 0:
  if libc.ptrace(0x4206, parent, 0, 0) == 0: open("/srv/traced", "w").close()
  while True: time.sleep(60)
while True: time.sleep(0.02)
`;

/** Gives each order of the agent's control socket from inside, and says whether it was heard. */
const usurper = `
import socket
for order in (b"l", b"n", b"r"):
  peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  peer.connect(b"\\0coppice-agent")
  try:
    socket.send_fds(peer, [order], [socket.socket().fileno()])
    print("heard" if socket.recv_fds(peer, 16, 16)[1] else "refused")
  except OSError: print("refused")
`;

describeWithMemory('memory in the branch', (driver) => {
  let daemon: RunningDaemon;
  const made: Sandbox[] = [];

  const create = async (options: Record<string, unknown> = {}): Promise<Sandbox> => {
    // Another number at each try, as what an earlier one left keeps its name.
    const name = `${options.name}-${made.length}`;
    const sandbox = await daemon.client.sandboxes.create({
      image: 'host',
      ...options,
      name,
    });
    made.push(sandbox);
    return sandbox;
  };

  const forkWithMemory = async (
    sandbox: Sandbox,
    options: Record<string, unknown> = {},
  ): Promise<Sandbox[]> => {
    const { sandboxes, failures } = await sandbox.fork({ memory: true, ...options });
    expect(failures).toEqual([]);
    made.push(...sandboxes);
    return sandboxes;
  };

  const shell = async (sandbox: Sandbox, command: string): Promise<string> => {
    const result = await sandbox.exec(command);
    expect(result, command).toMatchObject({ exit_code: 0 });
    return result.stdout.trim();
  };

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ image: false, config: driver.config });
  });

  afterAll(async () => {
    // What still runs is for the purge to end, which fails when anything is left.
    for (const sandbox of made.slice(1)) await sandbox.destroy();
    await daemon?.[Symbol.asyncDispose]();
  });

  it('forks a server under load: no request to the source is lost, and each fork goes on from the same count', async () => {
    const source = await create({ name: 'server', network: { allow: ['198.51.100.1'] } });
    await source.files.write('/srv/counter.py', counterServer);
    await source.jobs.start(['python3', '/srv/counter.py']);
    const { host_port: port } = await source.ports.forward(8000);
    await eventually('the server answers', () => httpGet(port).then(Boolean, () => false));
    let stop = false;
    const seen: number[] = [];
    const load = (async () => {
      while (!stop) seen.push(Number((await httpGet(port)).split(' ')[0]));
    })();
    await eventually('some requests were answered', () => seen.length > 5);
    const forks = await forkWithMemory(source, { count: 2, name_prefix: `${source.name}-fork` });
    const atFork = seen.length;
    await eventually('the source answers again', () => seen.length > atFork + 5);
    stop = true;
    await load;
    // Each answer one more than the last: nothing was lost, nothing was served twice.
    expect(seen).toEqual(seen.map((_, index) => seen[0]! + index));
    for (const fork of forks) {
      const { host_port } = await fork.ports.forward(8000);
      const [count, token] = (await httpGet(host_port)).split(' ');
      expect(Number(count)).toBeGreaterThan(5);
      expect(token).toBe((await httpGet(port)).split(' ')[1]);
      expect(await shell(fork, 'hostname')).toBe(fork.name);
      expect(await shell(fork, 'cat /run/coppice/fork.json')).toContain(fork.id);
    }
    const addresses = await Promise.all([source, ...forks].map(async (one) => (await one.inspect()).address));
    expect(new Set(addresses).size).toBe(3);
    const random = await Promise.all(
      [source, ...forks].map((sandbox) => shell(sandbox, 'head -c 16 /dev/urandom | od -An -tx1')),
    );
    expect(new Set(random).size).toBe(3);
    await source.ports.remove(8000);
  });

  it('keeps shells with their variables, transactions, and trees of processes, and restores the source to them', async () => {
    const source = await create({ name: 'state' });
    const terminal = await source.terminals.open({ command: ['/bin/bash'] });
    const session = await source.terminals.attach(terminal.id);
    await session.write('FLAVOUR=vanilla; echo ready-$FLAVOUR > /tmp/ready\n');
    await eventually('the shell has its variable', async () =>
      (await source.exec('cat /tmp/ready')).stdout.includes('ready-vanilla'),
    );
    session.detach();
    await source.files.write(
      '/srv/transaction.py',
      `
import sqlite3, time, os
db = sqlite3.connect("/srv/test.db", isolation_level=None)
db.execute("create table t (v)")
db.execute("begin immediate")
db.execute("insert into t values (1)")
open("/srv/begun", "w").close()
while not os.path.exists("/srv/go"): time.sleep(0.02)
db.execute("insert into t values (2)")
db.execute("commit")
open("/srv/done", "w").close()
`,
    );
    await source.jobs.start(['python3', '/srv/transaction.py']);
    await eventually(
      'the transaction has begun',
      async () => (await source.exec('test -e /srv/begun')).exit_code === 0,
    );
    await source.jobs.start(['/bin/sh', '-c', 'for i in $(seq 50); do sleep 98765 & done; wait']);
    const sleepers =
      'ls /proc | grep -E "^[0-9]+$" | while read p; do tr "\\0" " " < /proc/$p/cmdline 2>/dev/null; echo; done | grep -c "^sleep 98765"';
    await eventually('the tree stands', async () => (await source.exec(sleepers)).stdout.trim() === '50');
    const checkpoint = await source.checkpoint({ name: 'mid' });
    expect(checkpoint).toMatchObject({ has_memory: true, name: 'mid' });
    expect(checkpoint.pause_ms).toBeGreaterThan(0);

    const [fork] = await forkWithMemory(source, {
      memory: false,
      snapshot: 'mid',
      name: `${source.name}-fork`,
    });
    const check = async (sandbox: Sandbox) => {
      expect(await shell(sandbox, sleepers)).toBe('50');
      const again = await sandbox.terminals.attach(terminal.id);
      await again.write('echo still-$FLAVOUR > /tmp/still\n');
      await eventually('the shell goes on', async () =>
        (await sandbox.exec('cat /tmp/still')).stdout.includes('still-vanilla'),
      );
      again.detach();
      await shell(sandbox, 'touch /srv/go');
      await eventually(
        'the transaction ends',
        async () => (await sandbox.exec('test -e /srv/done')).exit_code === 0,
      );
      expect(
        await shell(
          sandbox,
          `python3 -c "import sqlite3; print(sqlite3.connect('/srv/test.db').execute('select sum(v) from t').fetchone()[0])"`,
        ),
      ).toBe('3');
    };
    await check(fork!);
    expect((await source.exec('test -e /srv/done')).exit_code).toBe(1);
    await check(source);
    expect(await source.restore('mid')).toMatchObject({ with_memory: true, state: 'running' });
    expect((await source.exec('test -e /srv/done')).exit_code).toBe(1);
    await check(source);
    await expect(daemon.client.snapshots.delete(checkpoint.id)).rejects.toMatchObject({ code: 'in_use' });
  });

  it('pauses and resumes ten times and loses nothing', async () => {
    const sandbox = await create({ name: 'sleeper' });
    const job = await sandbox.jobs.start([
      '/bin/sh',
      '-c',
      'i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done',
    ]);
    for (let round = 1; round <= 10; round += 1) {
      await sandbox.pause();
      expect((await sandbox.inspect()).state).toBe('paused');
      await eventually('no process of it is left', () => processesOf(sandbox.id).length === 0);
      // The next call wakes it, and its caller only waits.
      expect(await shell(sandbox, `echo round ${round}`)).toBe(`round ${round}`);
    }
    const { entries } = await sandbox.jobs.read(job.id, { cursor: 0, max_bytes: 4_000_000 });
    const lines = entries
      .map(({ text }) => text)
      .join('')
      .trim()
      .split('\n')
      .map(Number);
    expect(lines).toEqual(lines.map((_, index) => index + 1));
    expect((await sandbox.jobs.get(job.id)).running).toBe(true);
  });

  it('sleeps when it has been idle, and a connection to its port wakes it', async () => {
    const sandbox = await create({ name: 'idler' });
    await sandbox.files.write('/srv/counter.py', counterServer);
    await sandbox.jobs.start(['python3', '/srv/counter.py'], { keep_awake: false });
    const { host_port: port } = await sandbox.ports.forward(8000);
    await eventually('the server answers', () => httpGet(port).then(Boolean, () => false));
    await sandbox.update({ idle_timeout_s: 1 });
    const state = async () =>
      (await daemon.client.sandboxes.list({})).find(({ id }) => id === sandbox.id)?.state;
    await eventually('it sleeps', async () => (await state()) === 'paused');
    expect(await httpGet(port)).toMatch(/^\d+ /);
    await sandbox.update({ idle_timeout_s: null });
  });

  it('goes on through the death of the daemon, and can be checkpointed and paused after it', async () => {
    const sandbox = await create({ name: 'survivor' });
    const job = await sandbox.jobs.start([
      '/bin/sh',
      '-c',
      'i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done',
    ]);
    await daemon.kill('SIGKILL');
    await daemon.restart();
    const again = daemon.client.sandboxes.at(sandbox.id);
    expect(await shell(again, 'echo here')).toBe('here');
    expect((await again.jobs.get(job.id)).running).toBe(true);
    expect(await again.checkpoint({ name: 'after' })).toMatchObject({ has_memory: true });
    await again.pause();
    await daemon.kill('SIGKILL');
    await daemon.restart();
    expect((await again.inspect()).state).toBe('paused');
    expect(await shell(again, 'echo awake')).toBe('awake');
    expect((await again.jobs.get(job.id)).running).toBe(true);
  });

  it('starts a new sandbox from a checkpoint as from a template', async () => {
    const template = await create({ name: 'template' });
    await template.jobs.start(['/bin/sh', '-c', 'echo warm; exec sleep 9999']);
    const checkpoint = await template.checkpoint({ name: 'warm' });
    const grown = await create({ name: 'grown', image: undefined, driver: undefined, from: checkpoint.id });
    expect(await grown.jobs.list()).toMatchObject([{ running: true }]);
    expect(await shell(grown, 'hostname')).toBe(grown.name);
  });

  it('gives a fork its own policy, limits, variables and token from its first instruction on', async () => {
    const callers = new Set<string>();
    const server = createServer((socket) => {
      const caller = (socket.remoteAddress ?? '').replace('::ffff:', '');
      // Anything on this machine may knock at a port that was somebody else's a moment ago; one that has gone has no address.
      if (caller !== '' && caller !== '::1' && !caller.startsWith('127.')) callers.add(caller);
      // Over at once on both sides: gVisor keeps no connection that leaves it.
      socket.resetAndDestroy();
    });
    await new Promise<void>((resolve) => server.listen(0, resolve));
    try {
      const { port } = server.address() as AddressInfo;
      const source = await create({ name: 'knocker', network: { allow_host_ports: [port] }, memory_mb: 512 });
      const { address } = await source.inspect();
      await source.files.write('/srv/knocker.py', knocker);
      const gateway = address!.replace(/\.\d+\.\d+$/, '.0.1');
      const job = await source.jobs.start(['python3', '/srv/knocker.py', gateway, String(port)]);
      await eventually('it gets through', () => callers.has(address!));
      let from = '';
      await eventually('no connection is open', async () => {
        const taken = await source.checkpoint().catch((error: CoppiceError) => error);
        // On a busy machine the sandbox may also be too slow to stand still.
        if (taken instanceof CoppiceError) expect(['unsupported', 'timeout']).toContain(taken.code);
        else from = taken.id;
        return from !== '';
      });
      const grow = { image: undefined, from };
      const shut = await create({
        ...grow,
        name: 'shut',
        network: {},
        env: { FLAVOUR: 'new' },
        memory_mb: 300,
      });
      const last = async (sandbox: Sandbox) =>
        (await sandbox.jobs.read(job.id, { cursor: 0, max_bytes: 4_000_000 })).entries
          .map(({ text }) => text)
          .join('')
          .trim()
          .split('\n');
      await eventually('it has tried often in vain', async () => {
        const lines = await last(shut);
        return lines.length > 20 && lines.slice(-20).every((line) => line === 'held');
      });
      const open = await create({ ...grow, name: 'open' });
      const others = new Set([(await open.inspect()).address, (await shut.inspect()).address]);
      expect(others.has(address)).toBe(false);
      await eventually('one that may gets through', async () => (await last(open)).at(-1) === 'through');
      expect([...callers].sort()).toEqual([address, (await open.inspect()).address].sort());
      expect(await shell(shut, 'echo $FLAVOUR')).toBe('new');
      const { traces } = daemon;
      expect(traces.memoryLimitBytes(shut.id)).toBeLessThan(traces.memoryLimitBytes(source.id));
      expect(shut.token).not.toBe(source.token);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it('says what CRIU cannot keep in its own words, and the source goes on', async ({ skip }) => {
    skip(driver.name === 'gvisor', 'gVisor keeps all that runs in it');
    const source = await create({ name: 'traced' });
    await source.files.write('/srv/traced.py', traced);
    const job = await source.jobs.start(['python3', '/srv/traced.py']);
    await eventually('it is traced', async () => (await source.exec('test -e /srv/traced')).exit_code === 0);
    await expect(source.checkpoint()).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringMatching(/CRIU cannot keep the memory of sandbox sb_\w+: \S+/),
    });
    expect(await source.snapshots()).toEqual([]);
    await expect(source.pause()).rejects.toMatchObject({ code: 'unsupported' });
    expect((await source.inspect()).state).toBe('running');
    expect((await source.jobs.get(job.id)).running).toBe(true);
    expect(await shell(source, 'echo here')).toBe('here');
  });

  it('lends what is the host’s to nobody inside', async ({ skip }) => {
    skip(driver.name === 'gvisor', 'its agent has nothing of the host');
    const sandbox = await create({ name: 'usurper' });
    await sandbox.files.write('/srv/usurper.py', usurper);
    expect(await shell(sandbox, 'python3 /srv/usurper.py')).toBe('refused\nrefused\nrefused');
    expect(await shell(sandbox, 'echo here')).toBe('here');
  });

  it('takes memory from elsewhere only where what restores it need not trust it', async () => {
    const source = await create({ name: 'traveller' });
    const { id } = await source.checkpoint({ name: 'packed' });
    const { snapshots } = daemon.client;
    const file = await collect(snapshots.export(id, { image: false }));
    const imported = snapshots.import(streamOf(file));
    if (driver.name === 'gvisor') expect(await imported).toMatchObject({ has_memory: true });
    else await expect(imported).rejects.toThrow('would be root of this machine');
    const taken = await snapshots.import(streamOf(file), { disk_only: true, name: 'files' });
    expect(taken).toMatchObject({ has_memory: false });
  });

  it('refuses a checkpoint of a stopped sandbox, and what was never taken or is gone', async () => {
    const stopped = await create({ name: 'stopped' });
    await stopped.stop();
    await expect(stopped.checkpoint()).rejects.toMatchObject({ code: 'wrong_state' });
    await expect(stopped.restore('never-taken')).rejects.toMatchObject({ code: 'not_found' });
    await stopped.destroy();
    await expect(stopped.restore('never-taken')).rejects.toMatchObject({ code: 'not_found' });
    made.splice(made.indexOf(stopped), 1);
  });

  it('refuses memory where the driver cannot keep it, and says why', async ({ skip }) => {
    skip(driver.name === 'container', 'here it can');
    const container = await create({ name: 'plain', driver: 'container' });
    await expect(container.checkpoint()).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining('CRIU'),
    });
    const { findings } = await daemon.client.doctor();
    expect(findings.map(({ message }) => message).join()).toContain('CRIU');
    await expect(container.pause()).rejects.toMatchObject({ code: 'unsupported' });
    expect((await container.inspect()).state).toBe('running');
  });
});
