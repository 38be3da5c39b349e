import type { PortForward } from '@coppice/protocol';
import type { Caller, CallOptions } from './connection/caller.ts';

/** Ports of the host that lead into one sandbox. */
export class Ports {
  readonly #caller: Caller;
  readonly #sandbox: string;

  constructor(caller: Caller, sandbox: string) {
    this.#caller = caller;
    this.#sandbox = sandbox;
  }

  /** Without `host_port` the daemon picks a free one. */
  forward(
    guestPort: number,
    { host_port, signal }: { readonly host_port?: number | undefined } & CallOptions = {},
  ): Promise<PortForward> {
    return this.#caller.call('forwardPort', {
      params: { sandbox: this.#sandbox },
      body: { guest_port: guestPort, ...(host_port === undefined ? {} : { host_port }) },
      signal,
    });
  }

  async list({ signal }: CallOptions = {}): Promise<PortForward[]> {
    return (await this.#caller.call('listPorts', { params: { sandbox: this.#sandbox }, signal })).items;
  }

  async remove(guestPort: number, { signal }: CallOptions = {}): Promise<void> {
    await this.#caller.call('removePort', { params: { sandbox: this.#sandbox, port: guestPort }, signal });
  }
}
