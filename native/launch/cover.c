#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Mounts files of the sandbox's /run over files of its root, from outside, as a sandbox may not mount. This process enters the user
 * and mount namespaces of the sandbox first: no path can lead out of it, and no right of the host is left. The sandbox decides what
 * stands at both paths, so only regular files are taken. A directory would show what is mounted over: the bare /proc, for one.
 */
static int open_file(int root, const char *path, uint64_t more, struct stat *found) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | more};
  int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  if (fd < 0) return -1;
  if (fstat(fd, found) == 0 && S_ISREG(found->st_mode)) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

static bool mount_over(int source, int place) {
  struct mount_attr sealed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
  int tree = (int)syscall(SYS_open_tree, source, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree < 0) return false;
  bool done = syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &sealed, sizeof sealed) == 0 &&
              syscall(SYS_move_mount, tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
  int number = errno;
  close(tree);
  errno = number;
  return done;
}

/* A place that is missing, or no file, is left out: the image has no such file. */
static bool cover_one(int root, const char *from, const char *at) {
  struct stat ours, theirs;
  int source = open_file(root, from, RESOLVE_NO_SYMLINKS, &ours);
  if (source < 0) return false;
  int place = open_file(root, at, 0, &theirs);
  bool is_covered = place >= 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
  bool done = place < 0 || is_covered || mount_over(source, place);
  int number = errno;
  close(source);
  if (place >= 0) close(place);
  errno = number;
  return done;
}

int cover(pid_t init, char **pairs, size_t count) {
  int pidfd = (int)syscall(SYS_pidfd_open, init, 0);
  if (pidfd < 0 || setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS) < 0) {
    fprintf(stderr, "enter the sandbox of process %d: %s\n", (int)init, strerror(errno));
    return 1;
  }
  int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (size_t at = 0; at + 1 < count; at += 2) {
    if (root >= 0 && cover_one(root, pairs[at], pairs[at + 1])) continue;
    fprintf(stderr, "mount %s over %s: %s\n", pairs[at], pairs[at + 1], strerror(errno));
    return 1;
  }
  return 0;
}
