/** Told how far something is. */
export interface Progress {
  /** `total` is unknown for most streams. */
  update(state: { readonly done: number; readonly total?: number; readonly detail?: string }): void;
}

/** Where commands say things: one twin for people, one for programs. */
export interface Output {
  readonly isJson: boolean;
  /** The answer of a command: the value for programs, the text for people. */
  result(value: unknown, text: () => string): void;
  /** Something worth knowing on the way, for people only. */
  note(text: string): void;
  /** Shows that work goes on when it takes a while. */
  during<T>(label: string, work: (progress: Progress) => Promise<T>): Promise<T>;
  paint(style: Style, text: string): string;
}

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';
