#define _GNU_SOURCE
#include "remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "descent.h"

/* Removes the directory that is empty now. Some filesystems lose their place when what they list is removed: then it is not, and read again. */
static int leave_and_remove(struct descent *descent, bool *again) {
  /* Not NAME_MAX: some filesystems have longer ones. */
  char *done = strdup(descent_name(descent));
  if (done == NULL) return -1;
  int result = descent_leave(descent);
  if (result == 0 && unlinkat(descent_here(descent), done, AT_REMOVEDIR) < 0 && errno != ENOENT) {
    result = errno != ENOTEMPTY || *again ? -1 : descent_enter(descent, done);
    *again = true;
  }
  int saved = errno;
  free(done);
  errno = saved;
  return result;
}

/* Empties the directory; what is in it goes the deepest first. */
static int remove_content(struct descent *descent) {
  bool again = false;
  for (;;) {
    const char *name = descent_next(descent);
    if (name == NULL && errno != 0) return -1;
    if (name == NULL && descent_depth(descent) == 0) return 0;
    if (name == NULL) {
      if (leave_and_remove(descent, &again) < 0) return -1;
      continue;
    }
    again = false;
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
