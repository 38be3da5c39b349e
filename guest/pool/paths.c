#define _GNU_SOURCE
#include "pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

int open_beneath(int root, const char *relative, int flags) {
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

int remove_tree_at(int directory, const char *name) {
  if (unlinkat(directory, name, 0) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  int inside = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inside < 0) return -1;
  DIR *stream = fdopendir(inside);
  if (stream == NULL) {
    close(inside);
    return -1;
  }
  int result = 0;
  struct dirent *entry;
  while (result == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    result = remove_tree_at(dirfd(stream), entry->d_name);
    /* Somebody else took it away first: that is what was wanted. */
    if (result < 0 && errno == ENOENT) result = 0;
  }
  if (result == 0 && errno != 0) result = -1;
  int saved = errno;
  closedir(stream);
  errno = saved;
  return result < 0 ? -1 : unlinkat(directory, name, AT_REMOVEDIR);
}
