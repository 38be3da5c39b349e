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
      .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
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

/* Empties the directory; what is in it goes the deepest first. */
static int remove_content(struct descent *descent) {
  int again = 0;
  for (;;) {
    const char *name = descent_next(descent);
    if (name == NULL && errno != 0) return -1;
    if (name == NULL && descent_depth(descent) == 0) return 0;
    if (name == NULL) {
      char done[NAME_MAX + 1];
      strcpy(done, descent_name(descent));
      if (descent_leave(descent) < 0) return -1;
      if (unlinkat(descent_here(descent), done, AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
      /* Some filesystems lose their place when what they list is removed: then something is left, and it is read once more. */
      if (errno != ENOTEMPTY || again || descent_enter(descent, done) < 0) return -1;
      again = 1;
      continue;
    }
    again = 0;
    /* Somebody else took it away first: that is what was wanted. */
    if (unlinkat(descent_here(descent), name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return -1;
    int refused = errno;
    if (unlinkat(descent_here(descent), name, AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
    if (errno == ENOTDIR) errno = refused;
    if (errno != ENOTEMPTY && errno != EEXIST) return -1;
    if (descent_enter(descent, name) < 0) return -1;
  }
}

int remove_tree_at(int directory, const char *name) {
  if (unlinkat(directory, name, 0) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  struct descent *descent = malloc(sizeof *descent);
  if (descent == NULL) return -1;
  int result = descent_begin(descent, openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (result == 0) {
    result = remove_content(descent);
    descent_end(descent);
  }
  int saved = errno;
  free(descent);
  errno = saved;
  return result < 0 ? -1 : unlinkat(directory, name, AT_REMOVEDIR);
}
