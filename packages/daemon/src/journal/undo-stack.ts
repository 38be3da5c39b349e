import type { Log } from '../host/log.ts';

/** What to take back when a call fails half-way: newest first, and on past a step that fails itself. */
export class UndoStack {
  readonly #steps: { readonly what: string; readonly undo: () => Promise<void> }[] = [];

  push(what: string, undo: () => Promise<void>): void {
    this.#steps.push({ what, undo });
  }

  async run(log: Log): Promise<void> {
    for (const { what, undo } of this.#steps.reverse()) {
      await undo().catch((error: unknown) => {
        log.error({ err: error }, `could not undo: ${what}; the next start of the daemon tries again`);
      });
    }
  }
}
