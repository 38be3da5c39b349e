/** What a row must reach. A value is a ratio to a peer unless it has a unit. */
export interface Target {
  readonly bound: 'most' | 'least';
  readonly value: number;
  readonly unit: '×' | 'ms' | 'MiB' | '';
}

export const atMost = (value: number, unit: Target['unit'] = '×'): Target => ({
  bound: 'most',
  value,
  unit,
});

export const atLeast = (value: number): Target => ({ bound: 'least', value, unit: '×' });

export const isKept = (target: Target, value: number): boolean =>
  target.bound === 'most' ? value <= target.value : value >= target.value;

/** Missed by more than half: beyond what another machine or a busy minute explains. */
export const isLost = (target: Target, value: number): boolean =>
  target.bound === 'most' ? value > target.value * 1.5 : value * 1.5 < target.value;

export const targetText = ({ bound, value, unit }: Target): string =>
  `${bound === 'most' ? '≤' : '≥'} ${value} ${unit}`.trim();
