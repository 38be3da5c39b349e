import { shapesOf } from '../secrets/shapes.ts';

/**
 * Covers every place where one of the secrets stands, in any form that it may have, with stars. The length stays, so that
 * chunks can be cut where they were.
 */
export function maskSecrets(bytes: Buffer, secrets: Iterable<string>): Buffer {
  const masked = Buffer.from(bytes);
  for (const secret of secrets) {
    if (secret.length < 4) continue; // too short to be told from ordinary text
    for (const form of shapesOf(secret)) {
      const needle = Buffer.from(form);
      for (let at = masked.indexOf(needle); at !== -1; at = masked.indexOf(needle, at + needle.length))
        masked.fill('*', at, at + needle.length);
    }
  }
  return masked;
}
