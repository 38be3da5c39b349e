interface Waiter {
  readonly exclusive: boolean;
  readonly enter: () => void;
}

class Gate {
  #sharers = 0;
  #held = false;
  readonly #waiting: Waiter[] = [];

  enter(exclusive: boolean, urgent: boolean): Promise<void> {
    if ((urgent || this.#waiting.length === 0) && this.#admits(exclusive)) {
      this.#count(exclusive);
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const waiter = { exclusive, enter: resolve };
      if (urgent) this.#waiting.unshift(waiter);
      else this.#waiting.push(waiter);
    });
  }

  leave(exclusive: boolean): void {
    if (exclusive) this.#held = false;
    else this.#sharers -= 1;
    for (let next = this.#waiting[0]; next && this.#admits(next.exclusive); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#count(next.exclusive);
      next.enter();
    }
  }

  get idle(): boolean {
    return !this.#held && this.#sharers === 0 && this.#waiting.length === 0;
  }

  #admits(exclusive: boolean): boolean {
    return !this.#held && (!exclusive || this.#sharers === 0);
  }

  #count(exclusive: boolean): void {
    if (exclusive) this.#held = true;
    else this.#sharers += 1;
  }
}

/** One lock per sandbox and per snapshot, first come first served but for what is urgent; there is no lock on all of them. */
export class KeyedLock {
  readonly #gates = new Map<string, Gate>();

  exclusive<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#hold(key, { exclusive: true }, work);
  }

  /** Before all that wait: what is under way was told to leave for this, and nobody may see what it left. */
  urgent<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#hold(key, { exclusive: true, urgent: true }, work);
  }

  /** Several at once, and no exclusive holder meanwhile. */
  shared<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#hold(key, { exclusive: false }, work);
  }

  isHeld(key: string): boolean {
    return this.#gates.has(key);
  }

  async #hold<T>(
    key: string,
    { exclusive, urgent = false }: { exclusive: boolean; urgent?: boolean },
    work: () => Promise<T>,
  ): Promise<T> {
    const gate = this.#gates.get(key) ?? new Gate();
    this.#gates.set(key, gate);
    await gate.enter(exclusive, urgent);
    try {
      return await work();
    } finally {
      gate.leave(exclusive);
      if (gate.idle) this.#gates.delete(key);
    }
  }
}
