import { closeSync, openSync, readSync } from 'node:fs';

/** From the kernel, without node:crypto, which takes longer to load than a short command takes to run. */
export const randomBytes = (count: number): Buffer => {
  const bytes = Buffer.alloc(count);
  const file = openSync('/dev/urandom', 'r');
  try {
    for (let at = 0; at < count; ) at += readSync(file, bytes, at, count - at, null);
  } finally {
    closeSync(file);
  }
  return bytes;
};
