#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int parse_number(const char *text, uint64_t *number) {
  char *end;
  errno = 0;
  *number = strtoull(text, &end, 10);
  if (errno == 0 && (end == text || *end != 0)) errno = EINVAL;
  return errno == 0 ? 0 : -1;
}

int open_directory(struct reply *reply, const char *path) {
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return directory < 0 ? fail(reply, "open the directory %s", path) : directory;
}

static int is_plain_name(const char *name) {
  return *name != 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= 255;
}

int open_parent(struct reply *reply, const char *path, const char **name) {
  const char *slash = strrchr(path, '/');
  if (*path != '/' || !is_plain_name(slash + 1)) {
    errno = EINVAL;
    return fail(reply, "take %s as the absolute path of an entry", path);
  }
  *name = slash + 1;
  if (slash == path) return open_directory(reply, "/");
  char *parent = strndup(path, (size_t)(slash - path));
  if (parent == NULL) return -1;
  int directory = open_directory(reply, parent);
  free(parent);
  return directory;
}

/* A path that the kernel takes in one piece. */
static int open_short(int root, const char *relative, int flags) {
  struct open_how how = {
      .flags = (__u64)(flags | O_CLOEXEC | O_NOFOLLOW),
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  for (;;) {
    long file = syscall(SYS_openat2, root, *relative == 0 ? "." : relative, &how, sizeof how);
    /* EAGAIN: something was renamed while the kernel walked; it asks to be called again. */
    if (file >= 0 || errno != EAGAIN) return (int)file;
  }
}

/* A longer one is walked in pieces, each beneath the one before. */
int open_beneath(int root, const char *relative, int flags) {
  char piece[PATH_MAX];
  int from = root;
  while (strlen(relative) >= sizeof piece) {
    const char *cut = memrchr(relative, '/', sizeof piece - 1);
    if (cut == NULL || cut == relative) {
      if (from != root) close(from);
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(piece, relative, (size_t)(cut - relative));
    piece[cut - relative] = 0;
    int next = open_short(from, piece, O_PATH | O_DIRECTORY);
    int saved = errno;
    if (from != root) close(from);
    errno = saved;
    if (next < 0) return -1;
    from = next;
    relative = cut + 1;
  }
  int file = open_short(from, relative, flags);
  int saved = errno;
  if (from != root) close(from);
  errno = saved;
  return file;
}

int open_parent_beneath(int root, const char *relative, const char **name) {
  const char *slash = strrchr(relative, '/');
  *name = slash == NULL ? relative : slash + 1;
  if (!is_plain_name(*name)) {
    errno = EINVAL;
    return -1;
  }
  if (slash == NULL) return open_beneath(root, "", O_RDONLY | O_DIRECTORY);
  char *parent = strndup(relative, (size_t)(slash - relative));
  if (parent == NULL) return -1;
  int directory = open_beneath(root, parent, O_RDONLY | O_DIRECTORY);
  free(parent);
  return directory;
}
