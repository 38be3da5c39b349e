import { parseArgs } from 'node:util';
import { type Progress, soak } from './soak.ts';

const usage = `Random work of many clients on many sandboxes, with the daemon killed again and again.
npm run soak -- [--minutes 10] [--clients 20] [--sandboxes 40] [--kill-every 30] [--seed N]`;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    clients: { type: 'string', default: '20' },
    sandboxes: { type: 'string', default: '40' },
    'kill-every': { type: 'string', default: '30' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    help: { type: 'boolean', default: false },
  },
});

const numberOf = (name: 'minutes' | 'clients' | 'sandboxes' | 'kill-every' | 'seed'): number => {
  const number = Number(values[name]);
  if (Number.isFinite(number) && number >= 0 && values[name] !== '') return number;
  throw new Error(`--${name} has to be a number, not ${values[name]}\n${usage}`);
};

const say = (line: string): void => void process.stdout.write(`${line}\n`);

const main = async (): Promise<void> => {
  if (values.help) return say(usage);
  const [clients, sandboxes, seed] = [numberOf('clients'), numberOf('sandboxes'), numberOf('seed')];
  const [durationMs, killEveryMs] = [numberOf('minutes') * 60_000, numberOf('kill-every') * 1000];
  const startedMs = performance.now();
  let killedMs = startedMs;
  let saidMs = startedMs;
  const elapsedS = (): number => Math.round((performance.now() - startedMs) / 1000);
  const describe = ({ works, kills }: Progress): string => `${elapsedS()} s: ${works} works, ${kills} kills`;
  say(`${clients} clients, ${sandboxes} sandboxes, seed ${seed}`);
  const report = await soak({
    clients,
    sandboxes,
    seed,
    isOver: () => performance.now() - startedMs >= durationMs,
    shallKill: () => {
      if (performance.now() - killedMs < killEveryMs) return false;
      killedMs = performance.now();
      return true;
    },
    onProgress: (progress) => {
      if (performance.now() - saidMs < 10_000) return;
      saidMs = performance.now();
      say(describe(progress));
    },
  });
  say(`${describe(report)}; ${JSON.stringify(report.byWork)}`);
  say(`${report.filesChecked} files and snapshots are as acknowledged; nothing is left over`);
};

await main();
