import { Client } from '../client.ts';
import { type EndpointOptions, findEndpoint } from './endpoint.ts';
import { NodeTransport } from './node-transport.ts';

/**
 * A client of one daemon. Without options it is the daemon of this machine: COPPICE_URL and COPPICE_TOKEN, or the
 * records in COPPICE_HOME. Connections are kept open between calls; they do not keep the process alive.
 */
export class Coppice extends Client {
  constructor(options: EndpointOptions = {}, env: NodeJS.ProcessEnv = process.env) {
    super(new NodeTransport(() => findEndpoint(options, env)));
  }
}
