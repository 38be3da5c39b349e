/**
 * Bytes as the platform has them: a Buffer on Node, a plain Uint8Array in a browser. Programs on Node may rely on the
 * Buffer.
 */
const NodeBuffer = (globalThis as { readonly Buffer?: BufferConstructor }).Buffer;

export const bytesOfText = (text: string): Uint8Array =>
  NodeBuffer === undefined ? new TextEncoder().encode(text) : NodeBuffer.from(text);

export const bytesOfBase64 = (base64: string): Uint8Array =>
  NodeBuffer === undefined
    ? Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
    : NodeBuffer.from(base64, 'base64');

export const joinBytes = (parts: readonly Uint8Array[]): Uint8Array => {
  if (NodeBuffer !== undefined) return NodeBuffer.concat(parts);
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
};

export const textOfBytes = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
