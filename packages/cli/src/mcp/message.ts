/** What the shim looks at in a JSON-RPC message; it passes on all of it. */
export interface Message {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: {
    readonly name?: unknown;
    readonly uri?: unknown;
    readonly requestId?: unknown;
    readonly _meta?: Readonly<Record<string, unknown>>;
  };
}

export const asMessage = (line: string): Message | undefined => {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Message)
      : undefined;
  } catch {
    return undefined;
  }
};

const versionKey = 'io.modelcontextprotocol/protocolVersion';

/** A header holds printable ASCII; anything else travels as base64 between marks. */
const headerValue = (text: string): string =>
  /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith('=?base64?')
    ? text
    : `=?base64?${Buffer.from(text).toString('base64')}?=`;

/** The headers that HTTP asks for and a client on a pipe does not send. */
export const requestHeaders = (
  message: Message,
  session: string | undefined,
  negotiatedVersion: string | undefined,
): Record<string, string> => {
  const ownVersion = message.params?._meta?.[versionKey];
  const headers: Record<string, string> = {};
  if (typeof ownVersion === 'string') {
    headers['mcp-protocol-version'] = ownVersion;
    if (message.method !== undefined) headers['mcp-method'] = message.method;
    const name = message.params?.name ?? message.params?.uri;
    if (typeof name === 'string') headers['mcp-name'] = headerValue(name);
  } else if (negotiatedVersion !== undefined) headers['mcp-protocol-version'] = negotiatedVersion;
  if (session !== undefined) headers['mcp-session-id'] = session;
  return headers;
};
