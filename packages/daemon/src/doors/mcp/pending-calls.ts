interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: { readonly requestId?: unknown };
}

/** Finds the call that a `notifications/cancelled` of the same client means; it comes as a request of its own. */
export class PendingCalls {
  readonly #calls = new Map<string, AbortController>();

  /** Returns the function to call when the request is answered. A client that does not name itself cancels by leaving. */
  enter(client: string | undefined, body: unknown, abort: AbortController): () => void {
    if (client === undefined || typeof body !== 'object' || body === null) return () => {};
    const { id, method, params } = body as Message;
    if (method === 'notifications/cancelled')
      this.#calls.get(`${client} ${JSON.stringify(params?.requestId)}`)?.abort();
    if (id === undefined || method === undefined) return () => {};
    const key = `${client} ${JSON.stringify(id)}`;
    this.#calls.set(key, abort);
    return () => {
      if (this.#calls.get(key) === abort) this.#calls.delete(key);
    };
  }
}
