import { formatMemoryTraits, memoryMisfit, parseMemoryTraits } from '@coppice/runtime';
import { expect, test } from 'vitest';

const kept = { program: 'runsc', version: 'release-1', architecture: 'x64', cpuFeatures: ['aes', 'avx'] };
const misfit = (here: Partial<typeof kept>) =>
  memoryMisfit(formatMemoryTraits(kept), formatMemoryTraits({ ...kept, ...here }));

test('memory goes on under the same runtime on a processor that has at least the same features', () => {
  expect(misfit({})).toBeUndefined();
  expect(misfit({ cpuFeatures: ['adx', 'aes', 'avx', 'avx2'] })).toBeUndefined();
  expect(parseMemoryTraits(formatMemoryTraits(kept))).toEqual(kept);
});

test('another version, another architecture, a missing feature and no runtime at all are each named', () => {
  expect(misfit({ version: 'release-2' })).toBe(
    'it was kept by runsc release-1 on x64, and this machine has runsc release-2 on x64',
  );
  expect(misfit({ architecture: 'arm64' })).toContain('has runsc release-1 on arm64');
  expect(misfit({ cpuFeatures: ['aes'] })).toBe('the processor of this machine lacks avx');
  expect(memoryMisfit(formatMemoryTraits(kept), null)).toContain('cannot keep memory');
});
