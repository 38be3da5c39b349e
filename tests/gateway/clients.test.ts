import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { presets } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Internet, nameServer, server } from './internet.ts';

const [npmHost] = presets.npm as [string];
const [pypiHost, pypiFilesHost] = presets.pypi as [string, string];
const names = ['api.example.com', npmHost, pypiHost, pypiFilesHost, 'evil.example.com'];
const zone = Object.fromEntries(names.map((name) => [name, server]));

let internet: Internet;
let daemon: RunningDaemon;
let directory: string;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-clients-'));
  makeRegistries(join(directory, 'web'));
  internet = await Internet.open(zone, { WEB_FILES: join(directory, 'web') });
  const file = join(directory, 'authority.pem');
  writeFileSync(file, internet.authority);
  // The programs of this machine, as an image of Debian has them.
  daemon = await RunningDaemon.start({
    netns: internet.host,
    image: false,
    config: { default_image: 'host', gateway: { resolvers: [`${nameServer}:53`], authorities: [file] } },
  });
  await daemon.client.secrets.set('api', 'tok-51b0c7d2e9f4', {
    use: {
      hosts: ['api.example.com'],
      place: { kind: 'header', name: 'authorization', format: 'Bearer {}' },
    },
  });
}, 600_000);
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

/** A package for npm and one for pip, as their registries serve them. */
function makeRegistries(web: string): void {
  const put = (path: string, content: string | Buffer): string => {
    mkdirSync(dirname(join(web, path)), { recursive: true });
    writeFileSync(join(web, path), content);
    return join(web, path);
  };
  const digest = (file: string, how: string, form: 'hex' | 'base64') =>
    createHash(how).update(readFileSync(file)).digest(form);
  put(
    'npm/package/package.json',
    JSON.stringify({ name: 'coppice-probe', version: '1.0.0', main: 'index.js' }),
  );
  put('npm/package/index.js', "module.exports = 'from npm';\n");
  const tarball = put(`${npmHost}/coppice-probe/-/coppice-probe-1.0.0.tgz`, '');
  execFileSync('tar', ['-C', join(web, 'npm'), '-czf', tarball, 'package']);
  const version = {
    name: 'coppice-probe',
    version: '1.0.0',
    dist: {
      tarball: `https://${npmHost}/coppice-probe/-/coppice-probe-1.0.0.tgz`,
      shasum: digest(tarball, 'sha1', 'hex'),
      integrity: `sha512-${digest(tarball, 'sha512', 'base64')}`,
    },
  };
  const document = {
    name: 'coppice-probe',
    'dist-tags': { latest: '1.0.0' },
    versions: { '1.0.0': version },
  };
  // A file and the directory of its tarball cannot have one name.
  put(`${npmHost}/coppice-probe.json`, JSON.stringify(document));
  const wheel = put(`${pypiFilesHost}/packages/coppice_probe-1.0-py3-none-any.whl`, '');
  put('wheel/coppice_probe.py', "said = 'from pip'\n");
  const about = 'wheel/coppice_probe-1.0.dist-info';
  put(`${about}/METADATA`, 'Metadata-Version: 2.1\nName: coppice-probe\nVersion: 1.0\n');
  put(`${about}/WHEEL`, 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n');
  put(`${about}/RECORD`, '');
  const parts = ['coppice_probe.py', 'coppice_probe-1.0.dist-info'].map((part) => join(web, 'wheel', part));
  rmSync(wheel);
  execFileSync('python3', ['-m', 'zipfile', '-c', wheel, ...parts]);
  const link = `https://${pypiFilesHost}/packages/coppice_probe-1.0-py3-none-any.whl#sha256=${digest(wheel, 'sha256', 'hex')}`;
  put(
    `${pypiHost}/simple/coppice-probe/index.html`,
    `<a href="${link}">coppice_probe-1.0-py3-none-any.whl</a>`,
  );
}

const bare = 'env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp';
const sh = async (sandbox: Sandbox, command: string): Promise<{ code: number | null; said: string }> => {
  const { stdout, stderr, exit_code: code } = await sandbox.exec(['sh', '-c', command]);
  return { code, said: `${stdout}${stderr}` };
};

const program = `
import java.net.URI;
public class Fetch {
  public static void main(String[] args) throws Exception {
    try (var in = URI.create(args[0]).toURL().openStream()) { System.out.print(new String(in.readAllBytes())); }
  }
}`;

describe.each(['container', 'gvisor'] as const)('in a sandbox of %s', (driver) => {
  test('npm and pip install packages by the presets npm and pypi, and from nowhere else', async ({
    skip,
  }) => {
    const sandbox = await daemon.client.sandboxes.create({ driver, network: { allow: ['npm', 'pypi'] } });
    await sandbox.files.write('/etc/registries.pem', internet.authority);
    const pip = 'python3 -m pip --cert /etc/registries.pem --disable-pip-version-check';
    const installed = await sh(
      sandbox,
      `${bare} ${pip} install --retries 0 --no-cache-dir --target /tmp/pip coppice-probe`,
    );
    expect(installed.said).toContain('Successfully installed coppice-probe-1.0');
    const imported = 'cd /tmp/pip && python3 -c "import coppice_probe; print(coppice_probe.said)"';
    expect((await sh(sandbox, imported)).said).toBe('from pip\n');
    const elsewhere = '--index-url https://evil.example.com/simple';
    const refused = await sh(
      sandbox,
      `${bare} ${pip} install --retries 0 ${elsewhere} --target /tmp/x coppice-probe`,
    );
    expect(refused.code).not.toBe(0);
    if ((await sh(sandbox, `${bare} npm --version`)).code !== 0)
      skip('the npm of this machine is not below /usr');
    const npm = `${bare} NODE_EXTRA_CA_CERTS=/etc/registries.pem npm --no-audit --no-fund --fetch-retries=0 --prefix /tmp/npm`;
    await sh(sandbox, 'mkdir -p /tmp/npm');
    expect((await sh(sandbox, `${npm} install coppice-probe`)).said).toContain('added 1 package');
    expect((await sh(sandbox, 'cd /tmp/npm && node -p "require(\'coppice-probe\')"')).said).toBe(
      'from npm\n',
    );
    const other = await sh(sandbox, `${npm} --registry https://evil.example.com/ install coppice-probe@1`);
    expect(other.code).not.toBe(0);
    const missing = new Set(['evil.example.com refused', `${npmHost} allowed`, `${pypiHost} allowed`]);
    for await (const { name, verdict } of sandbox.connections()) {
      missing.delete(`${name} ${verdict}`);
      if (missing.size === 0) break;
    }
    await sandbox.destroy();
  });

  test('programs without any variable trust the gateway for the hosts of secrets, and the disk has nothing of it', async () => {
    const sandbox = await daemon.client.sandboxes.create({ driver });
    // As Alpine and Fedora have it, beside what Debian has.
    const layouts = `mkdir -p /etc/pki/ca-trust/extracted/pem /etc/pki/tls/certs
      cp /etc/ssl/certs/ca-certificates.crt /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem
      ln -s /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt
      ln -s /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem`;
    expect(await sh(sandbox, layouts)).toEqual({ code: 0, said: '' });
    const before = await sandbox.snapshot();
    await sandbox.setNetwork({ allow: ['api.example.com', 'evil.example.com', 'secret:api'] });
    const url = 'https://api.example.com/echo';
    const covered = /"authorization":"Bearer \*+"/;
    for (const fetch of [
      `curl -sS ${url}`,
      `wget -qO- ${url}`,
      `python3 -c "import urllib.request as r; print(r.urlopen('${url}').read().decode())"`,
      ...['/etc/pki/tls/certs/ca-bundle.crt', '/etc/ssl/cert.pem'].map(
        (file) => `curl -sS --cacert ${file} ${url}`,
      ),
    ])
      expect((await sh(sandbox, `${bare} ${fetch}`)).said, fetch).toMatch(covered);
    const openssl = await sh(
      sandbox,
      `${bare} openssl s_client -verify_return_error -connect api.example.com:443 -servername api.example.com < /dev/null`,
    );
    expect(openssl.said).toContain('Verify return code: 0 (ok)');
    // A host without a secret shows its own certificate, which nobody here trusts.
    expect((await sh(sandbox, `${bare} curl -sS https://evil.example.com/`)).said).toContain('certificate');
    const { changes } = await daemon.client.diff(before.id, sandbox.id);
    expect(changes.map(({ path }) => path).filter((path) => /ssl|pki|run/.test(path))).toEqual([]);
    const [fork] = (await sandbox.fork()).sandboxes;
    await fork!.setNetwork({ allow: [] });
    expect((await sh(fork!, 'grep -c Coppice /etc/ssl/certs/ca-certificates.crt')).said).toBe('0\n');
    await fork!.destroy();
    await sandbox.destroy();
  });

  test('Java trusts the gateway by the store of the system and by its variable', async ({ skip }) => {
    const sandbox = await daemon.client.sandboxes.create({
      driver,
      memory_mb: 1024,
      network: { allow: ['api.example.com', 'secret:api'] },
    });
    if ((await sh(sandbox, `${bare} javac -version`)).code !== 0)
      skip('there is no Java compiler below /usr');
    await sandbox.files.write('/tmp/Fetch.java', program);
    const fetch = 'java /tmp/Fetch.java https://api.example.com/echo';
    expect((await sh(sandbox, fetch)).said).toContain('"Bearer *');
    expect((await sh(sandbox, `${bare} ${fetch}`)).said).toContain('"Bearer *');
    await sandbox.destroy();
  });
});
