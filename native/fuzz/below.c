/* A path that a stored hard link names: what is opened for it is inside the tree. */
#include "../tree/below.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *place = fuzz_directory();
  const int root = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0 || mkdirat(root, "a", 0700) != 0 || mkdirat(root, "a/b", 0700) != 0 || symlinkat("/", root, "a/out") != 0) abort();
  char *path = fuzz_malloc(size + 1);
  if (size) memcpy(path, data, size);
  path[size] = 0;
  const char *last;
  const int found = parent_below(root, path, &last);
  if (found >= 0) {
    char link[40], where[4096] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", found);
    const size_t len = strlen(place);
    if (readlink(link, where, sizeof where - 1) < 0 || strncmp(where, place, len) != 0 || (where[len] && where[len] != '/')) abort();
    if (strchr(last, '/') || last < path || last > path + size) abort();
  }
  fuzz_tidy();
  return 0;
}
