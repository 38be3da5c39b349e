import type { Parameters } from 'fast-check';

/**
 * The same sequences in every run, so that a run says something about the code and not about its luck. Another seed
 * looks further: `COPPICE_SEED=42 npm test -- tests/property`. A failure prints seed and path.
 */
export const settings = <T>(numRuns: number): Parameters<T> => ({
  numRuns,
  seed: Number(process.env.COPPICE_SEED ?? 20_260),
});
