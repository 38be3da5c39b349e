import { CoppiceError } from '@coppice/protocol';

const loopbackNames = new Set(['localhost', '127.0.0.1', '[::1]']);

const hostName = (authority: string): string => authority.replace(/:\d+$/, '').toLowerCase();

/**
 * A browser page must not reach the daemon: neither under a name that was made to point here (DNS rebinding: Host),
 * nor from another site (Origin). Programs send no Origin and a loopback Host.
 */
export class HostCheck {
  readonly #allowed: ReadonlySet<string>;

  constructor(extraHosts: readonly string[] = []) {
    this.#allowed = new Set([...loopbackNames, ...extraHosts.map((host) => host.toLowerCase())]);
  }

  check(host: string | undefined, origin: string | undefined): void {
    if (host === undefined || !this.#allowed.has(hostName(host))) {
      throw new CoppiceError('forbidden', 'this Host is not served here', {
        hint: 'Call the daemon at 127.0.0.1, or add the name to `allowed_hosts` in config.json.',
      });
    }
    if (origin === undefined) return;
    let originHost: string | undefined;
    try {
      originHost = new URL(origin).host;
    } catch {
      originHost = undefined;
    }
    // Same origin only: another port of the same machine is another program.
    if (originHost === undefined || originHost.toLowerCase() !== host.toLowerCase()) {
      throw new CoppiceError('forbidden', 'calls from this Origin are refused', {
        hint: 'Call from a program, or from a page that the daemon itself serves.',
      });
    }
  }
}
