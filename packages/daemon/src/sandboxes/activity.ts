/** When each sandbox was last used, and by how many calls it is used now. Written to the database from time to time. */
export class Activity {
  readonly #now: () => number;
  readonly #lastMs = new Map<string, number>();
  readonly #holders = new Map<string, number>();
  readonly #unsaved = new Set<string>();

  constructor(now: () => number) {
    this.#now = now;
  }

  touch(sandboxId: string): void {
    this.#lastMs.set(sandboxId, this.#now());
    this.#unsaved.add(sandboxId);
  }

  /** Returns the function that ends the hold; calling it again does nothing. */
  hold(sandboxId: string): () => void {
    this.touch(sandboxId);
    this.#holders.set(sandboxId, (this.#holders.get(sandboxId) ?? 0) + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const left = (this.#holders.get(sandboxId) ?? 1) - 1;
      if (left > 0) this.#holders.set(sandboxId, left);
      else this.#holders.delete(sandboxId);
      this.touch(sandboxId);
    };
  }

  isHeld(sandboxId: string): boolean {
    return this.#holders.has(sandboxId);
  }

  lastMs(sandboxId: string): number | undefined {
    return this.#lastMs.get(sandboxId);
  }

  forget(sandboxId: string): void {
    this.#lastMs.delete(sandboxId);
    this.#holders.delete(sandboxId);
    this.#unsaved.delete(sandboxId);
  }

  takeUnsaved(): [string, number][] {
    const entries = [...this.#unsaved].flatMap((id): [string, number][] => {
      const atMs = this.#lastMs.get(id);
      return atMs === undefined ? [] : [[id, atMs]];
    });
    this.#unsaved.clear();
    return entries;
  }
}
