#define _GNU_SOURCE
#include "below.h"

#include <errno.h>
#include <fcntl.h>
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
