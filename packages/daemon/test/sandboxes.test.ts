import { setTimeout as sleep } from 'node:timers/promises';
import { CoppiceError } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const code = async (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'no error',
    (error: unknown) => (error instanceof CoppiceError ? error.code : String(error)),
  );

describe('sandboxes', () => {
  let daemon: RunningDaemon;
  beforeAll(async () => {
    daemon = await RunningDaemon.start({ config: { limits: { max_sandboxes: 6, total_memory_mb: 2048 } } });
  });
  afterAll(() => daemon[Symbol.asyncDispose]());

  const output = async (ref: string, command: string): Promise<string> =>
    (await daemon.client.sandboxes.at(ref).exec(command)).stdout.trim();

  /** What is deleted leaves the pool a moment after the answer. */
  const disksAre = (ids: readonly string[]): Promise<void> =>
    eventually(`the disks are ${ids.join()}`, () => daemon.traces.disks().join() === ids.join());

  test('the memory of all together is bounded however it is asked for', async () => {
    await using one = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    expect(await code(one.update({ memory_mb: 4096 }))).toBe('limit_reached');
    expect((await one.inspect()).memory_mb).toBe(1024);
    await one.stop();
    await using two = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    await two.stop();
    await using three = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    const codes = await Promise.all([code(one.start()), code(two.start())]);
    expect(codes.sort()).toEqual(['limit_reached', 'no error']);
    expect((await three.inspect()).state).toBe('running');
  });

  test('it is bounded for a sandbox that a resume, a call or a restore would make run, which changes nothing', async () => {
    await using asleep = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    await using asleepToo = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    for (const sandbox of [asleep, asleepToo]) {
      await sandbox.files.write('/root/file', 'then');
      await sandbox.snapshot({ name: 'then' });
      await sandbox.files.write('/root/file', 'now');
      await sandbox.pause({ keep: 'disk' });
    }
    await using awake = await daemon.client.sandboxes.create({ memory_mb: 1536 });
    expect(await code(asleep.resume())).toBe('limit_reached');
    expect(await code(asleep.exec('true'))).toBe('limit_reached');
    expect(await code(asleep.restore('then'))).toBe('limit_reached');
    expect(await code(asleep.restore('then', { discard: true }))).toBe('limit_reached');
    expect((await asleep.inspect()).state).toBe('paused');
    expect((await asleep.snapshots()).map(({ name }) => name)).toEqual(['then']);
    await awake.update({ memory_mb: 1024 });
    const codes = await Promise.all([code(asleep.restore('then')), code(asleepToo.restore('then'))]);
    expect(codes.sort()).toEqual(['limit_reached', 'no error']);
    await awake.stop({ grace_s: 0 });
    for (const sandbox of [asleep, asleepToo]) await sandbox.resume();
    const texts = await Promise.all([asleep, asleepToo].map((one) => one.files.readText('/root/file')));
    expect(texts.sort()).toEqual(['now', 'then']);
  });

  test('a variable that no process could be given is refused when it is set', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ env: { A: '1' } });
    expect(await code(sandbox.update({ env: { A: 'a\0b' } }))).toBe('invalid_argument');
    const many = Object.fromEntries(Array.from({ length: 1024 }, (_, index) => [`V${index}`, '']));
    expect(await code(sandbox.update({ env: many }))).toBe('invalid_argument');
    // The kernel counts bytes, with the name.
    expect(await code(sandbox.update({ env: { LONG: 'é'.repeat(65_534) } }))).toBe('invalid_argument');
    // More than a process can be given, though each step is small.
    const large = (from: number) =>
      Object.fromEntries([0, 1, 2, 3, 4].map((index) => [`L${from + index}`, 'x'.repeat(120_000)]));
    await sandbox.update({ env: large(0) });
    expect(await code(sandbox.update({ env: large(5) }))).toBe('invalid_argument');
    expect(await code(sandbox.fork({ env: large(5) }))).toBe('invalid_argument');
    const { id } = await sandbox.snapshot();
    expect(await code(daemon.client.sandboxes.create({ from: id, env: large(5) }))).toBe('invalid_argument');
    expect(await output(sandbox.id, 'echo $A')).toBe('1');
  });

  test('a new sandbox runs under its own name with its limits, labels and environment', async () => {
    await using sandbox = await daemon.client.sandboxes.create({
      name: 'First.One',
      cpus: 1,
      memory_mb: 128,
      pids: 64,
      env: { GREETING: 'good day' },
      labels: { team: 'blue' },
    });
    const detail = await sandbox.inspect();
    expect(detail).toMatchObject({
      name: 'First.One',
      state: 'running',
      hostname: 'first-one',
      memory_mb: 128,
      env_names: ['GREETING'],
      labels: { team: 'blue' },
      parent: null,
    });
    expect(detail.usage?.pids).toBeGreaterThan(0);
    expect(await output(sandbox.id, 'echo $GREETING on $(hostname)')).toBe('good day on first-one');
  });

  test('a name that is taken is refused, and nothing is left of the attempt', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ name: 'taken' });
    expect(await code(daemon.client.sandboxes.create({ name: 'taken' }))).toBe('name_taken');
    expect(daemon.traces.machines()).toEqual([sandbox.id]);
    await disksAre([sandbox.id]);
  });

  test('a sandbox that cannot start leaves no record, disk or process', async () => {
    const refused = daemon.client.sandboxes.create({ name: 'no-such-image', image: 'nowhere' });
    expect(await code(refused)).toBe('not_found');
    expect(await daemon.client.sandboxes.list()).toEqual([]);
    await disksAre([]);
  });

  test('stopping frees its processes and keeps its disk; starting brings it back', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.exec('echo kept > /root/kept; sleep 1000 &');
    await sandbox.stop({ grace_s: 0 });
    expect(sandbox.info?.state).toBe('stopped');
    expect(daemon.traces.machines()).toEqual([]);
    expect(await code(sandbox.exec('true'))).toBe('wrong_state');
    await sandbox.start();
    expect(await output(sandbox.id, 'cat /root/kept')).toBe('kept');
  });

  test('destroying leaves nothing', async () => {
    const sandbox = await daemon.client.sandboxes.create({ network: { allow: ['198.51.100.1'] } });
    await sandbox.destroy();
    expect(daemon.traces.machines()).toEqual([]);
    expect(daemon.traces.runDirectories()).toEqual([]);
    await disksAre([]);
    expect(await code(sandbox.inspect())).toBe('not_found');
  });

  test('lists are filtered by state, label and image', async () => {
    await using one = await daemon.client.sandboxes.create({ labels: { team: 'blue', step: '1' } });
    await using two = await daemon.client.sandboxes.create({ labels: { team: 'red' } });
    await two.stop({ grace_s: 0 });
    const ids = async (query: Parameters<typeof daemon.client.sandboxes.list>[0]) =>
      (await daemon.client.sandboxes.list(query)).map((sandbox) => sandbox.id);
    expect(await ids({ label: 'team=blue,step' })).toEqual([one.id]);
    expect(await ids({ state: 'stopped' })).toEqual([two.id]);
    expect(await ids({ image: 'tiny' })).toEqual([one.id, two.id]);
    expect(await ids({ image: 'host' })).toEqual([]);
  });

  test('limits of the daemon are held and say which', async () => {
    await using _one = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    expect(await code(daemon.client.sandboxes.create({ memory_mb: 1025 }))).toBe('limit_reached');
    await using _two = await daemon.client.sandboxes.create({ memory_mb: 1024 });
    expect(await code(daemon.client.sandboxes.create({ memory_mb: 16 }))).toBe('limit_reached');
  });

  test('changes of environment, name and limits hold for what runs next', async () => {
    await using sandbox = await daemon.client.sandboxes.create({ env: { A: '1', B: '2' } });
    await sandbox.update({ name: 'renamed', env: { A: null, C: '3' }, pids: 32 });
    expect(await output('renamed', 'echo "$A-$B-$C"')).toBe('-2-3');
    expect((await sandbox.inspect()).pids).toBe(32);
  });

  test('an idle timeout that would have to kill is refused unless its owner says stop', async () => {
    expect(await code(daemon.client.sandboxes.create({ idle_timeout_s: 60 }))).toBe('unsupported');
    await using sandbox = await daemon.client.sandboxes.create({ idle_timeout_s: 1, idle_action: 'stop' });
    await eventually('the idle sandbox stops', async () => {
      const [found] = await daemon.client.sandboxes.list({ state: 'stopped' });
      return found?.id === sandbox.id;
    });
  });

  test('a sandbox whose lifetime is over is destroyed, and was warned of', async () => {
    const sandbox = await daemon.client.sandboxes.create({ max_lifetime_s: 1 });
    await eventually('it is destroyed', async () => (await daemon.client.sandboxes.list()).length === 0);
    const { events } = await daemon.client.events.list({ sandbox: sandbox.id });
    const types = events.map((event) => event.type);
    expect(types.slice(-2)).toEqual(['sandbox.lifetime_ending', 'sandbox.destroyed']);
  });

  test('pausing without memory is a choice by name, and the next call wakes it', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    expect(await code(sandbox.pause())).toBe('unsupported');
    await sandbox.exec('echo kept > /root/kept');
    await sandbox.pause({ keep: 'disk' });
    expect(sandbox.info?.state).toBe('paused');
    expect(daemon.traces.machines()).toEqual([]);
    expect(await output(sandbox.id, 'cat /root/kept')).toBe('kept');
  });

  test('a command whose caller left while the sandbox was woken is not started', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await sandbox.pause({ keep: 'disk' });
    daemon.holdAt('recovery.sweeping');
    await daemon.restart();
    const abort = new AbortController();
    const left = sandbox.exec('echo ran > /root/ran; sleep 1000', { signal: abort.signal });
    const refused = expect(left).rejects.toMatchObject({ code: 'cancelled' });
    const kept = sandbox.exec('echo kept > /root/kept');
    // Long enough that both wait; where the machine is slower the caller left even earlier.
    await sleep(300);
    abort.abort();
    await refused;
    await sleep(300);
    daemon.disarm();
    await kept;
    expect(await output(sandbox.id, 'cat /root/ran /root/kept 2>&1; pidof sleep')).not.toMatch(/^ran/);
  });

  test('when its first process is killed the sandbox has failed, says so, and can be started again', async () => {
    await using sandbox = await daemon.client.sandboxes.create();
    await using neighbour = await daemon.client.sandboxes.create();
    await code(sandbox.exec('kill -KILL -1; kill -TERM 1; sleep 1000', { timeout_ms: 60_000 }));
    await eventually('it has failed', async () => (await sandbox.inspect()).state === 'failed');
    expect((await sandbox.inspect()).failure).toMatch(/first process/);
    await sandbox.start();
    expect(await output(sandbox.id, 'echo back')).toBe('back');
    expect(await output(neighbour.id, 'echo here')).toBe('here');
  });
});
