#define _GNU_SOURCE
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { names_limit = 1000, patience = 100 };

static int open_beneath(int root, const char *name, uint64_t flags, uint64_t resolve) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags, .resolve = RESOLVE_NO_XDEV | resolve};
  int fd = -1;
  /* The kernel gives up where something was renamed meanwhile, anywhere on the machine. */
  for (int attempt = 0; attempt < patience; attempt++) {
    fd = (int)syscall(SYS_openat2, root, name, &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN) break;
  }
  return fd;
}

static int open_as(int root, const char *name, enum place_kind kind) {
  if (kind == place_led_to) return open_beneath(root, name, O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
  if (kind == place_directory) return open_beneath(root, name, O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  int fd = open_beneath(root, name, O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  struct stat found;
  if (fd < 0 || (fstat(fd, &found) == 0 && S_ISREG(found.st_mode))) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

static bool is_there(int parent, const char *name) {
  struct stat found;
  return fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool set_aside(int parent, const char *name) {
  char aside[NAME_MAX + 1];
  for (int number = 0; number < names_limit; number++) {
    snprintf(aside, sizeof aside, number == 0 ? "%s.set-aside" : "%s.set-aside.%d", name, number);
    if (renameat2(parent, name, parent, aside, RENAME_NOREPLACE) == 0) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

static bool make(int parent, const char *name, enum place_kind kind, mode_t mode) {
  if (kind != place_file) return mkdirat(parent, name, 0700) == 0 && fchmodat(parent, name, mode, 0) == 0;
  int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  return fd >= 0 && close(fd) == 0;
}

int open_place(int root, const char *name, enum place_kind kind, mode_t mode) {
  const char *slash = strrchr(name, '/');
  char above[PATH_MAX] = ".";
  int fd = open_as(root, name, kind);
  if (fd >= 0 || (errno != ENOENT && errno != ELOOP && errno != ENOTDIR && errno != EINVAL && errno != EXDEV)) return fd;
  if (slash) snprintf(above, sizeof above, "%.*s", (int)(slash - name), name);
  int parent = open_beneath(root, above, O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  if (parent < 0) return -1;
  const char *last = slash ? slash + 1 : name;
  bool made = (!is_there(parent, last) || set_aside(parent, last)) && make(parent, last, kind, mode);
  int number = errno;
  close(parent);
  errno = number;
  return made ? open_as(root, name, kind) : -1;
}

int clone_place(int place) {
  return (int)syscall(SYS_open_tree, place, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}
