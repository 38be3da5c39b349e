import type { Style } from './output.ts';
import type { Cell } from './table.ts';

/** Every state of everything looks the same wherever it is shown. */
export const stateStyles: Readonly<Record<string, Style>> = {
  running: 'green',
  paused: 'cyan',
  stopped: 'yellow',
  creating: 'dim',
  destroying: 'dim',
  failed: 'red',
};

export const stateCell = (state: string, more = ''): Cell => ({
  text: more === '' ? state : `${state}: ${more}`,
  style: stateStyles[state] ?? 'dim',
});
