import type { Cell, Head, Look } from './table.ts';

/** Told how far something is. */
export interface Progress {
  /** `total` is unknown for most streams. */
  update(state: { readonly done: number; readonly total?: number; readonly detail?: string }): void;
}

/** Where commands say things: one twin for people, one for programs. */
export interface Output extends Look {
  readonly isJson: boolean;
  /** The answer of a command: the value for programs, the text for people. */
  result(value: unknown, text: () => string): void;
  /** Something worth knowing on the way, for people only. */
  note(text: string): void;
  /** Shows that work goes on when it takes a while. */
  during<T>(label: string, work: (progress: Progress) => Promise<T>): Promise<T>;
  /** As wide as the terminal, and in its colours: see table.ts. */
  table(heads: readonly Head[], rows: readonly (readonly Cell[])[], whenEmpty: string): string;
  facts(pairs: readonly (readonly [string, Cell])[]): string;
}

export type { Style } from './table.ts';
