import { peek } from '../archive-format.ts';

const blockBytes = 512;
const mostHeadBytes = 256 << 10;
/** What the archives of docker, podman, skopeo, buildah, umoci and kaniko begin with. No root filesystem has these at its top. */
const imagePattern =
  /^(?:blobs(?:\/|$)|oci-layout$|index\.json$|manifest\.json$|repositories$|(?:sha256:)?[0-9a-f]{64}(?:[./]|$))/;

/** Whether a tar holds an image, as `docker save` and OCI tools write it, and not the files of a root filesystem. */
export async function looksLikeImage(
  tar: AsyncIterable<Buffer>,
): Promise<{ isImage: boolean; whole: AsyncIterable<Buffer> }> {
  let name: string | undefined;
  const { whole } = await peek(tar, (head) => {
    const found = firstName(head);
    name = found.name;
    return found.name !== undefined || head.length > mostHeadBytes ? 0 : found.wanted;
  });
  return { isImage: name !== undefined && imagePattern.test(name), whole };
}

/** The first name that says something: neither the root nor a header that belongs to the next entry. */
function firstName(head: Buffer): { name?: string; wanted: number } {
  for (let at = 0; ; ) {
    if (head.length < at + blockBytes) return { wanted: at + blockBytes };
    const header = head.subarray(at, at + blockBytes);
    const type = String.fromCharCode(header[156]!);
    const name = header.toString('latin1', 0, 100).replace(/\0.*$/s, '').replace(/^\.\//, '');
    if (!['x', 'g', 'L', 'K'].includes(type) && name !== '' && name !== '.') return { name, wanted: 0 };
    // A tar ends with zeros.
    if (header.every((byte) => byte === 0)) return { name: '', wanted: 0 };
    const size = Number.parseInt(header.toString('latin1', 124, 136), 8) || 0;
    at += blockBytes + Math.ceil(size / blockBytes) * blockBytes;
  }
}
