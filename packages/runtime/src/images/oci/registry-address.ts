import { isIPv4 } from 'node:net';
import { CoppiceError } from '@coppice/protocol';

/** Docker Hub answers under another name than the one that stands in the names of its images. */
const hubHost = 'registry-1.docker.io';

export const registryHost = (registry: string): string => (registry === 'docker.io' ? hubHost : registry);

/** By what is written, not by what a name server says: only these may be spoken to in the clear. */
export function isLoopback(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, '');
  if (isIPv4(host)) return host.startsWith('127.');
  return host === 'localhost' || host.endsWith('.localhost') || host === '::1';
}

/** Refuses what would carry secrets or images over the network in the clear, and what would turn us on our own machine. */
export function checkAddress(url: URL, from?: URL): void {
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw new CoppiceError('unsafe', `a registry sends us to ${url.protocol}, which is not the web`);
  if (url.username !== '' || url.password !== '')
    throw new CoppiceError('unsafe', `a registry sends us to ${url.host} with a password in the address`);
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw new CoppiceError(
      'unsafe',
      `${url.host} is to be spoken to without TLS, which is allowed for this machine alone`,
      {
        hint: 'Give the registry a certificate, or reach it through a tunnel that ends on this machine.',
      },
    );
  if (from !== undefined && isLoopback(url.hostname) && !isLoopback(from.hostname))
    throw new CoppiceError(
      'unsafe',
      `the registry ${from.host} sends us to ${url.host}, a service of this machine`,
    );
}
