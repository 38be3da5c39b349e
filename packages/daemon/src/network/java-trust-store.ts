import { createHash, X509Certificate } from 'node:crypto';

const magic = 0xfeedfeed;
const version = 2;
const trustedCertificate = 2;
/** What Java's own stores have. It keeps nothing secret: it guards against accidents. */
const password = 'changeit';

/** Certificates in PEM as a store that every version of Java reads (JKS). What is no certificate is left out, as Java would refuse the whole store. */
export function javaTrustStore(pem: string): Buffer {
  const certificates = [...pem.matchAll(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)]
    .map(([text]) => readable(text))
    .filter((raw) => raw !== undefined);
  const entries = certificates.flatMap((raw, index) => [
    word(trustedCertificate),
    text(`authority-${index}`),
    Buffer.alloc(8),
    text('X.509'),
    word(raw.length),
    raw,
  ]);
  const body = Buffer.concat([word(magic), word(version), word(certificates.length), ...entries]);
  const digest = createHash('sha1')
    .update(Buffer.from(password, 'utf16le').swap16())
    .update('Mighty Aphrodite')
    .update(body)
    .digest();
  return Buffer.concat([body, digest]);
}

const readable = (pem: string): Buffer | undefined => {
  try {
    return new X509Certificate(pem).raw;
  } catch {
    return undefined;
  }
};

const word = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};

const text = (value: string): Buffer => {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(bytes.length);
  return Buffer.concat([length, bytes]);
};
