import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Authority } from '../src/secrets/authority.ts';

let directory: string;
let authority: Authority;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-authority-'));
  authority = Authority.open(join(directory, 'authority.pem'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** What a client is shown that asks for this host. */
async function shown(name: string): Promise<string> {
  const server = createServer((socket) => {
    new TLSSocket(socket, { isServer: true, secureContext: authority.contextFor(name) }).on(
      'error',
      () => {},
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false });
  try {
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
    const text = socket.getPeerCertificate().raw.toString('base64');
    return `-----BEGIN CERTIFICATE-----\n${text.replace(/.{1,64}/g, '$&\n')}-----END CERTIFICATE-----\n`;
  } finally {
    socket.destroy();
    server.close();
  }
}

async function verify(hosts: readonly string[], name: string): Promise<string> {
  const [trusted, leaf] = [join(directory, 'trusted.pem'), join(directory, 'leaf.pem')];
  writeFileSync(trusted, authority.certificateFor(hosts));
  writeFileSync(leaf, await shown(name));
  const args = [
    'verify',
    '-x509_strict',
    '-purpose',
    'sslserver',
    '-verify_hostname',
    name,
    '-CAfile',
    trusted,
    leaf,
  ];
  return promisify(execFile)('openssl', args).then(
    ({ stdout }) => stdout,
    (error: { stderr: string }) => error.stderr,
  );
}

test('a sandbox trusts the authority for the hosts of its secrets and for no other', async () => {
  const hosts = ['api.example.com', '*.deep.example.org'];
  expect(await verify(hosts, 'api.example.com')).toContain('OK');
  expect(await verify(hosts, 'a.deep.example.org')).toContain('OK');
  for (const other of ['example.com', 'other.example.com', 'api.example.com.evil.net', 'evilapi.example.com'])
    expect(await verify(hosts, other), other).toContain('permitted subtree violation');
  // A secret without hosts is no reason to trust it for anything.
  expect(await verify([], 'api.example.com')).toContain('permitted subtree violation');
  const many = Array.from({ length: 3_000 }, (_, index) => `host-${index}.example.com`);
  expect(await verify(many, 'host-2999.example.com')).toContain('OK');
});

test('an authority of an earlier version, whose file has a certificate too, goes on', () => {
  const file = join(directory, 'earlier.pem');
  Authority.open(file);
  writeFileSync(file, authority.certificateFor([]), { flag: 'a' });
  expect(Authority.open(file).certificateFor(['a.example.com'])).toContain('BEGIN CERTIFICATE');
});
