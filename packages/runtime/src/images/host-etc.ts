/**
 * The /etc of the `host` image. Files that administrators write into are written anew here; only files that come
 * from packages and that programs need to work are taken from the machine.
 */
export interface SynthesisedFile {
  readonly path: string;
  readonly mode: number;
  readonly text: string;
}

const systemGroups: readonly (readonly [string, number])[] = [
  ['root', 0],
  ['daemon', 1],
  ['bin', 2],
  ['sys', 3],
  ['adm', 4],
  ['tty', 5],
  ['disk', 6],
  ['mail', 8],
  ['www-data', 33],
  ['shadow', 42],
  ['utmp', 43],
  ['video', 44],
  ['staff', 50],
  ['games', 60],
  ['users', 100],
  ['user', 1000],
  ['nogroup', 65534],
];

const accounts: readonly (readonly [name: string, id: number, gid: number, home: string, shell: string])[] = [
  ['root', 0, 0, '/root', '/bin/bash'],
  ['daemon', 1, 1, '/usr/sbin', '/usr/sbin/nologin'],
  ['bin', 2, 2, '/bin', '/usr/sbin/nologin'],
  ['sys', 3, 3, '/dev', '/usr/sbin/nologin'],
  ['mail', 8, 8, '/var/mail', '/usr/sbin/nologin'],
  ['www-data', 33, 33, '/var/www', '/usr/sbin/nologin'],
  ['user', 1000, 1000, '/home/user', '/bin/bash'],
  ['nobody', 65534, 65534, '/nonexistent', '/usr/sbin/nologin'],
];

const lines = (items: readonly string[]): string => items.map((item) => `${item}\n`).join('');

const searchPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export const synthesisedFiles: readonly SynthesisedFile[] = [
  {
    path: 'etc/passwd',
    mode: 0o644,
    text: lines(accounts.map(([name, uid, gid, home, shell]) => `${name}:x:${uid}:${gid}::${home}:${shell}`)),
  },
  { path: 'etc/group', mode: 0o644, text: lines(systemGroups.map(([name, gid]) => `${name}:x:${gid}:`)) },
  // `*` never matches a password: the accounts are entered by the guest agent, not by logging in.
  { path: 'etc/shadow', mode: 0o640, text: lines(accounts.map(([name]) => `${name}:*:19000:0:99999:7:::`)) },
  { path: 'etc/gshadow', mode: 0o640, text: lines(systemGroups.map(([name]) => `${name}:*::`)) },
  {
    path: 'etc/resolv.conf',
    mode: 0o644,
    // The machine's own resolver is often on its loopback, which no sandbox reaches, and its search domains are private.
    text: lines([
      '# Public resolvers, used where the network policy of the sandbox lets them be reached.',
      'nameserver 1.1.1.1',
      'nameserver 9.9.9.9',
      // The kernel of the host answers few refusals in a second; the rest is waited for.
      'options timeout:2',
    ]),
  },
  {
    path: 'etc/nsswitch.conf',
    mode: 0o644,
    text: lines([
      'passwd: files',
      'group: files',
      'shadow: files',
      'hosts: files dns',
      'networks: files',
      'protocols: files',
      'services: files',
      'ethers: files',
      'rpc: files',
    ]),
  },
  {
    path: 'etc/pam.d/other',
    mode: 0o644,
    // root becomes anyone with `su`; nobody else becomes anyone, as no account has a password.
    text: lines([
      'auth sufficient pam_rootok.so',
      'auth required pam_deny.so',
      'account required pam_permit.so',
      'session required pam_permit.so',
      'password required pam_deny.so',
    ]),
  },
  { path: 'etc/host.conf', mode: 0o644, text: 'multi on\n' },
  { path: 'etc/machine-id', mode: 0o444, text: '' },
  { path: 'etc/environment', mode: 0o644, text: '' },
  { path: 'etc/fstab', mode: 0o644, text: '' },
  { path: 'etc/timezone', mode: 0o644, text: 'Etc/UTC\n' },
  { path: 'etc/shells', mode: 0o644, text: '/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n' },
  {
    path: 'etc/profile',
    mode: 0o644,
    text: lines([
      `export PATH="${searchPath}"`,
      'if [ -n "$BASH" ] && [ "$BASH" != /bin/sh ] && [ -f /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi',
      'for i in /etc/profile.d/*.sh; do if [ -r "$i" ]; then . "$i"; fi; done',
      'unset i',
    ]),
  },
  {
    path: 'etc/bash.bashrc',
    mode: 0o644,
    text: lines(['[ -z "$PS1" ] && return', 'shopt -s checkwinsize', "PS1='\\u@\\h:\\w\\$ '"]),
  },
  { path: 'home/user/.bashrc', mode: 0o644, text: '[ -f /etc/bash.bashrc ] && . /etc/bash.bashrc\n' },
  { path: 'home/user/.profile', mode: 0o644, text: '[ -n "$BASH" ] && [ -f ~/.bashrc ] && . ~/.bashrc\n' },
  { path: 'root/.bashrc', mode: 0o644, text: '[ -f /etc/bash.bashrc ] && . /etc/bash.bashrc\n' },
];

export interface SynthesisedDirectory {
  readonly path: string;
  readonly mode: number;
  readonly owner: number;
}

const directory = (path: string, mode = 0o755, owner = 0): SynthesisedDirectory => ({ path, mode, owner });

export const synthesisedDirectories: readonly SynthesisedDirectory[] = [
  ...['dev', 'proc', 'sys', 'run', 'boot', 'mnt', 'media', 'opt', 'srv', 'usr', 'etc', 'var', 'home'].map(
    (path) => directory(path),
  ),
  directory('tmp', 0o1777),
  directory('root', 0o700),
  directory('home/user', 0o755, 1000),
  directory('workspace'),
  ...['cache', 'lib', 'log', 'mail', 'opt', 'spool'].map((name) => directory(`var/${name}`)),
  directory('var/tmp', 0o1777),
  ...['bin', 'etc', 'games', 'include', 'lib', 'sbin', 'share', 'src'].map((name) =>
    directory(`usr/local/${name}`),
  ),
  ...['pam.d', 'profile.d', 'skel', 'opt', 'ssl'].map((name) => directory(`etc/${name}`)),
  directory('run/lock', 0o1777),
];

/** Each sandbox its own name, a fork too, and no file that differs between them. */
export const hostnameLink = ['etc/hostname', '/proc/sys/kernel/hostname'] as const;

/** Where the agent of a sandbox keeps what it is called, and the gateway: it changes with a fork or a rename, and no snapshot holds it. */
export const hostsLink = ['etc/hosts', '/run/coppice/hosts'] as const;

export const synthesisedLinks: readonly (readonly [path: string, target: string])[] = [
  hostnameLink,
  hostsLink,
  ['etc/localtime', '/usr/share/zoneinfo/Etc/UTC'],
  ['etc/os-release', '../usr/lib/os-release'],
  ['etc/mtab', '/proc/mounts'],
  ['var/run', '/run'],
  ['var/lock', '/run/lock'],
];

/**
 * Names below /etc that come from packages, hold nothing of the machine's owner, and that programs in /usr cannot do
 * without: the loader's cache, the alternatives that /usr/bin points through, certificates of public authorities,
 * tables of names and numbers, and the configuration that Java, Python and fonts link to from /usr.
 */
export const packagedEtcNames: readonly (string | RegExp)[] = [
  'alternatives',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'ca-certificates.conf',
  'debian_version',
  'ethertypes',
  'protocols',
  'services',
  'rpc',
  'networks',
  'mime.types',
  'magic',
  'magic.mime',
  'locale.alias',
  'inputrc',
  'terminfo',
  'fonts',
  'vim',
  'xattr.conf',
  'login.defs',
  'gai.conf',
  /^java-\d+-openjdk$/,
  /^python3(\.\d+)?$/,
];

/** /etc/ssl has a `private` beside these. */
export const packagedSslNames: readonly string[] = ['certs', 'openssl.cnf'];
