import { expect, test } from 'vitest';
import { soak } from './soak.ts';

test('clients whose daemon is killed while they work find all that was acknowledged, and nothing is left over', {
  timeout: 600_000,
}, async () => {
  const worksPerKill = 20;
  const kills = 2;
  const report = await soak({
    clients: 3,
    sandboxes: 4,
    seed: 7,
    shallKill: (progress) => progress.kills < kills && progress.works >= worksPerKill * (progress.kills + 1),
    isOver: (progress) => progress.kills >= kills && progress.works >= worksPerKill * (kills + 1),
  });
  expect(report.kills).toBe(kills);
  expect(report.filesChecked).toBeGreaterThanOrEqual(16);
});
