#ifndef COPPICE_LIB_PATH_H
#define COPPICE_LIB_PATH_H

#include <stdbool.h>
#include <string.h>

/* Whether a path is `top` or lies below it. Both are plain: no double slashes, no dots. */
static inline bool is_at_or_below(const char *path, const char *top) {
  const size_t length = strlen(top);
  return strncmp(path, top, length) == 0 && (path[length] == 0 || path[length] == '/');
}

#endif
