/**
 * The WebSocket subprotocol that the daemon speaks. A client names it, and next to it may offer its token as a second
 * one: browsers send no Authorization header with a WebSocket. The daemon answers with the first and never repeats the
 * second.
 */
export const socketProtocol = 'coppice.v1';

const tokenPrefix = 'coppice.bearer.';

/** Tokens are base64url with an underscore, which are characters that a protocol name may have. */
export const tokenProtocol = (token: string): string => tokenPrefix + token;

/** The token among the protocols that a client offers. */
export const tokenOfProtocols = (offered: string): string | undefined =>
  offered
    .split(',')
    .map((protocol) => protocol.trim())
    .find((protocol) => protocol.startsWith(tokenPrefix))
    ?.slice(tokenPrefix.length);
