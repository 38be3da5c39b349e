#define _GNU_SOURCE
#include "below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int parent_below(int root, const char *path, const char **last) {
  int at = openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (const char *slash; at >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
    char name[256];
    const size_t len = (size_t)(slash - path);
    if (len >= sizeof name) {
      close(at);
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(name, path, len);
    name[len] = 0;
    /* A path that comes from a workspace may hold anything. */
    if (len == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
      close(at);
      errno = ENOENT;
      return -1;
    }
    const int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int error = errno;
    close(at);
    errno = error;
    at = next;
  }
  *last = path;
  return at;
}

void near_forget(struct near_below *near) {
  if (near->dir >= 0) close(near->dir);
  free(near->folder);
  *near = (struct near_below){.dir = -1};
}

int near_below(struct near_below *near, int root, const char *path, const char **last) {
  const char *slash = strrchr(path, '/');
  const size_t len = slash ? (size_t)(slash - path) : 0;
  if (near->dir >= 0 && strlen(near->folder) == len && memcmp(near->folder, path, len) == 0) {
    *last = slash ? slash + 1 : path;
    return near->dir;
  }
  near_forget(near);
  char *folder = strndup(path, len);
  if (!folder) return -1;
  near->dir = parent_below(root, path, last);
  if (near->dir < 0) {
    const int error = errno;
    free(folder);
    errno = error;
  } else near->folder = folder;
  return near->dir;
}
