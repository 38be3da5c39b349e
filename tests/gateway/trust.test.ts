import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates, TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { javaTrustStore } from '../../packages/daemon/src/network/java-trust-store.ts';
import { Authority } from '../../packages/gateway/src/secrets/authority.ts';

const run = promisify(execFile);
let directory: string;
let server: Server;
let port: number;

const program = `
import java.net.URI;
public class Fetch {
  public static void main(String[] args) throws Exception {
    try (var in = URI.create(args[0]).toURL().openStream()) { System.out.print(new String(in.readAllBytes())); }
  }
}`;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-trust-'));
  const authority = Authority.open(join(directory, 'authority.pem'));
  const page = createHttp((_request, response) => response.end('trusted'));
  // Java names no server in its greeting where the host is one word, so the certificate is not chosen by that.
  server = createServer((socket) => {
    const secureContext = authority.contextFor('localhost');
    page.emit(
      'connection',
      new TLSSocket(socket, { isServer: true, secureContext }).on('error', () => {}),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
  const bundle = ['-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----', ...rootCertificates];
  writeFileSync(
    join(directory, 'ours.jks'),
    javaTrustStore(`${bundle.join('\n')}\n${authority.certificateFor(['localhost'])}`),
  );
  writeFileSync(join(directory, 'others.jks'), javaTrustStore(bundle.join('\n')));
  writeFileSync(join(directory, 'Fetch.java'), program);
});
afterAll(() => {
  server.close();
  rmSync(directory, { recursive: true, force: true });
});

const hasJava = async (): Promise<boolean> => {
  try {
    await run('javac', ['-version']);
    return true;
  } catch {
    return false;
  }
};

test('Java trusts the authority by the store that its variable names, and not without it', async ({
  skip,
}) => {
  if (!(await hasJava())) skip('there is no Java compiler on this machine');
  const fetch = (store: string) =>
    run('java', [join(directory, 'Fetch.java'), `https://localhost:${port}/`], {
      env: { ...process.env, JAVA_TOOL_OPTIONS: `-Djavax.net.ssl.trustStore=${join(directory, store)}` },
    });
  expect((await fetch('ours.jks')).stdout).toBe('trusted');
  await expect(fetch('others.jks')).rejects.toThrow(/PKIX|certificat/);
});
