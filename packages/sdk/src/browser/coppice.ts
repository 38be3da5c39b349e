import { Client } from '../client.ts';
import { type BrowserOptions, BrowserTransport } from './browser-transport.ts';

/** A client in a browser. Without options it is the daemon that served the page, with the page's own sign-in. */
export class Coppice extends Client {
  constructor(options: BrowserOptions = {}) {
    super(new BrowserTransport(options));
  }
}
