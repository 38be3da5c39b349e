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

static bool path_of(int fd, char *path) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = '\0';
  return length > 0;
}

/* Whether a mount there would hide the root, or what is mounted on another place. */
static bool hides_others(int root, int fd, const char *name) {
  static const char *const others[] = {"proc", "sys", "dev", "run", "tmp", "workspace"};
  char top[PATH_MAX], path[PATH_MAX];
  if (!path_of(root, top) || !path_of(fd, path)) return true;
  size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
  if (strncmp(path, top, length) != 0 || path[length] != '/' || path[length + 1] == 0) return true;
  const char *first = path + length + 1;
  size_t first_length = strcspn(first, "/");
  for (size_t index = 0; index < sizeof others / sizeof *others; index++)
    if (strlen(others[index]) == first_length && strncmp(first, others[index], first_length) == 0 && strcmp(others[index], name) != 0)
      return true;
  return false;
}

static int open_led_to(int root, const char *name) {
  int fd = open_beneath(root, name, O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
  if (fd < 0 || !hides_others(root, fd, name)) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

static int open_as(int root, const char *name, enum place_kind kind) {
  if (kind == place_led_to) return open_led_to(root, name);
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

/* The directories above a place; those that are missing are made. None of them may be a link. */
static int open_above(int root, const char *above) {
  const uint64_t beneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  char part[PATH_MAX];
  for (const char *end = above; *end; end += strspn(end, "/")) {
    end += strcspn(end, "/");
    snprintf(part, sizeof part, "%.*s", (int)(end - above), above);
    int parent = open_beneath(root, part, O_DIRECTORY, beneath);
    if (parent >= 0) close(parent);
    else if (errno != ENOENT || !make(root, part, place_directory, 0755)) return -1;
  }
  return open_beneath(root, above, O_DIRECTORY, beneath);
}

int open_place(int root, const char *name, enum place_kind kind, mode_t mode) {
  const char *slash = strrchr(name, '/');
  char above[PATH_MAX] = ".";
  int fd = open_as(root, name, kind);
  if (fd >= 0 || (errno != ENOENT && errno != ELOOP && errno != ENOTDIR && errno != EINVAL && errno != EXDEV)) return fd;
  if (slash) snprintf(above, sizeof above, "%.*s", (int)(slash - name), name);
  int parent = open_above(root, above);
  if (parent < 0) return -1;
  const char *last = slash ? slash + 1 : name;
  bool made = (!is_there(parent, last) || set_aside(parent, last)) && make(parent, last, kind, mode);
  int number = errno;
  close(parent);
  errno = number;
  return made ? open_as(root, name, kind) : -1;
}

int clone_place(int place) { return (int)syscall(SYS_open_tree, place, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC); }
