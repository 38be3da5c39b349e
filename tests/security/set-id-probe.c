/*
 * Tries every system call that gives a file its mode, to make set-id files in a directory. With --who it says whom it runs as;
 * with --become-root it tries to become root first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long result) { printf("%s %s\n", what, result < 0 ? strerror(errno) : "done"); }

static int make(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);
  if (fd < 0) say(name, -1);
  return fd;
}

int main(int count, char **arguments) {
  if (count > 1 && arguments[1][0] == '-') {
    if (strcmp(arguments[1], "--become-root") == 0 && setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0) puts("became root");
    printf("%d %d\n", (int)geteuid(), (int)getegid());
    return 0;
  }
  if (count < 2 || chdir(arguments[1]) < 0) return 1;
  umask(0);
  int here = open(".", O_PATH | O_DIRECTORY);
  char path[64];
  struct open_how how = {.flags = O_RDWR | O_CREAT, .mode = 06755};
#ifdef SYS_chmod
  close(make("by-chmod"));
  say("chmod", syscall(SYS_chmod, "by-chmod", 06755));
  say("mknod", syscall(SYS_mknod, "by-mknod", S_IFREG | 06755, 0));
  say("mknod without a type", syscall(SYS_mknod, "by-mknod-0", 06755, 0));
  say("open", syscall(SYS_open, "by-open", O_RDWR | O_CREAT, 06755));
  say("creat", syscall(SYS_creat, "by-creat", 06755));
#endif
  say("fchmod", syscall(SYS_fchmod, make("by-fchmod"), 04755));
  close(make("by-fchmodat"));
  say("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "by-fchmodat", 02755));
  close(make("by-fchmodat-absolute"));
  snprintf(path, sizeof path, "%s/by-fchmodat-absolute", arguments[1]);
  say("fchmodat with a whole path", syscall(SYS_fchmodat, -1, path, 06755));
  close(make("by-fchmodat2"));
  say("fchmodat2", syscall(452, here, "by-fchmodat2", 06755, AT_SYMLINK_NOFOLLOW));
  say("fchmodat2 of a descriptor", syscall(452, make("by-fchmodat2-fd"), "", 06755, AT_EMPTY_PATH));
  snprintf(path, sizeof path, "/proc/self/fd/%d", make("by-magic-link"));
  say("fchmodat of a magic link", syscall(SYS_fchmodat, AT_FDCWD, path, 06755));
  say("mknodat", syscall(SYS_mknodat, here, "by-mknodat", S_IFREG | 06755, 0));
  say("openat", syscall(SYS_openat, here, "by-openat", O_RDWR | O_CREAT, 06755));
  int nameless = (int)syscall(SYS_openat, here, ".", O_RDWR | O_TMPFILE, 06755);
  say("openat without a name", nameless);
  snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
  if (nameless >= 0) say("linkat", linkat(AT_FDCWD, path, here, "by-linkat", AT_SYMLINK_FOLLOW));
  say("openat2", syscall(SYS_openat2, here, "by-openat2", &how, sizeof how));
  return 0;
}
