/** Runs where cgroups are of version 2 alone, and says on its last line what the kernel did. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HomeCgroups } from '../../src/cgroups/home-cgroups.ts';

const limits = { cpus: 0.5, memoryBytes: 64 << 20, pids: 8 };
const home = new HomeCgroups('coppice-test');
home.prepare();
const group = home.group('sb_one');
for (const directory of group.directories) mkdirSync(directory);
for (const { file, value } of group.settings(limits)) writeFileSync(file, value);
const [directory = ''] = group.directories;

const read = (name: string): string => readFileSync(join(directory, name), 'utf8').trim();
const count = (name: string, key: string): number =>
  Number(new RegExp(`^${key} (\\d+)$`, 'm').exec(read(name))?.[1]);
const shown = (): string[] => ['cpu.max', 'memory.max', 'memory.swap.max', 'pids.max'].map(read);

const inGroup = (command: string) =>
  spawn('/bin/sh', ['-c', `echo $$ > ${directory}/cgroup.procs; ${command}`], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
const untilSo = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await sleep(20);
};

const set = shown();
const many = inGroup('for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000000 & done; wait');
await untilSo(() => count('pids.events', 'max') > 0);
await group.kill();
if (many.exitCode === null && many.signalCode === null) await once(many, 'exit');

await once(inGroup('head -c 200000000 /dev/zero | tail > /dev/null'), 'exit');
const { oomKills } = group.usage();

const busy = inGroup("x=$(head -c 8000000 /dev/zero | tr '\\0' x); echo ready; while :; do :; done");
await once(busy.stdout, 'data');
await untilSo(() => count('cpu.stat', 'nr_throttled') > 0);
await group.freeze();
const frozen = count('cgroup.events', 'frozen');
await group.thaw();
const { cpuUsec, memoryBytes, pids } = group.usage();
await untilSo(() => group.usage().cpuUsec > cpuUsec);

group.setLimits({ cpus: 2, memoryBytes: 32 << 20, pids: 16 });
const changed = shown();
let refusal = 'none';
try {
  group.setLimits({ ...limits, memoryBytes: 1 << 20 });
} catch (error) {
  refusal = (error as { code: string }).code;
}

await group.freeze();
const ended = once(busy, 'exit');
await group.kill();
const [, killedBy] = await ended;
await group.remove();
home.release();
const used = { memory: memoryBytes > 8_000_000, pids };
console.log(
  JSON.stringify({
    layout: home.description,
    ...{ set, oomKills, frozen, used, changed, refusal, killedBy },
    left: home.list(),
  }),
);
