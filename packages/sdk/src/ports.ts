import type { PortForward, RouteResult } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Ports of the host that lead into one sandbox. */
export class Ports {
  readonly #caller: Caller;
  readonly #sandbox: string;

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#sandbox = sandbox;
  }

  /** Without `hostPort` the daemon picks a free one. */
  forward(
    guestPort: number,
    { hostPort, signal }: { readonly hostPort?: number | undefined } & CallOptions = {},
  ): Promise<PortForward> {
    return this.#caller.call('forwardPort', {
      params: { sandbox: this.#sandbox },
      body: { guest_port: guestPort, ...(hostPort === undefined ? {} : { host_port: hostPort }) },
      signal,
    });
  }

  async list({ signal }: CallOptions = {}): Promise<PortForward[]> {
    return (await this.#caller.call('listPorts', { params: { sandbox: this.#sandbox }, signal })).items;
  }

  /** Until something inside takes connections there; a minute unless told otherwise, then `timeout`. */
  wait(
    guestPort: number,
    { timeoutMs, signal }: { readonly timeoutMs?: number | undefined } & CallOptions = {},
  ): Promise<RouteResult<'waitForPort'>> {
    return this.#caller.call('waitForPort', {
      params: { sandbox: this.#sandbox, port: guestPort },
      body: timeoutMs === undefined ? {} : { timeout_ms: timeoutMs },
      signal,
    });
  }

  async remove(guestPort: number, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removePort', { params: { sandbox: this.#sandbox, port: guestPort }, signal });
  }
}
