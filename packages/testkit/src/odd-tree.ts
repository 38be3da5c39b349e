import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Everything about a tree that a faithful copy must keep, as text. Needs the Debian packages acl and attr. */
export const treeListing = async (directory: string): Promise<string> => {
  const script = String.raw`
    cd -- "$1"
    find . -printf '%p %y %m %U:%G %T@ %l %n' \( -type d -printf '\n' -o -printf ' %s\n' \) | LC_ALL=C sort
    find . -printf '%i %p\n' -type f | LC_ALL=C sort | awk '{ if ($1 == last) print "linked", before, $2; last = $1; before = $2 }' | LC_ALL=C sort
    find . -type c -exec stat -c '%n %t:%T' {} +
    find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex --
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum --
  `;
  const { stdout } = await run('sh', ['-c', script, 'sh', directory], {
    encoding: 'latin1',
    maxBuffer: 64 * 1024 ** 2,
    env: { ...process.env, LC_ALL: 'C' },
  });
  return stdout;
};

/** One of everything that a filesystem can hold and a careless copy loses. */
export const fillWithOddities = async (directory: string): Promise<void> => {
  const script = String.raw`
    set -e
    cd -- "$1"
    mkdir -p deep/er/est empty sticky
    echo text > plain
    ln plain deep/hardlink
    ln -s plain link
    ln -s /nowhere/at/all dangling
    mkfifo fifo
    mknod whiteout c 0 0
    echo script > setuid; chown 1000:1001 setuid; chmod 4755 setuid
    echo secret > closed; chown 7:8 closed; chmod 0000 closed
    chmod 1777 sticky
    truncate -s 10M sparse; printf end | dd of=sparse bs=1 seek=5000000 conv=notrunc status=none
    printf odd > "$(printf 'not-utf8-\377\376')"
    printf newline > "$(printf 'line\nbreak')"
    echo attributed > attributed
    setfattr -n user.note -v hello attributed
    setfattr -n trusted.note -v root attributed
    setfattr -n user.overlay.opaque -v y deep/er
    setfacl -m u:1234:rwx attributed
    setfacl -d -m u:1234:rx empty
    : > nothing
    chown -h 5:6 link
    touch -h -d '2001-02-03 04:05:06.123456789' plain link deep/er/est
    touch -d '1999-12-31 23:59:59.987654321' deep
  `;
  await run('sh', ['-c', script, 'sh', directory]);
};
