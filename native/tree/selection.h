/* The part of a tree that an operation is about: all of it, or some paths. */
#ifndef COPPICE_TREE_SELECTION_H
#define COPPICE_TREE_SELECTION_H

#include <stddef.h>

struct selection {
  char **paths;
  size_t count; /* 0: all of it */
};
/* ON_THE_WAY: a directory above a path that is selected. */
enum { OUTSIDE, ON_THE_WAY, INSIDE };
int selected(const struct selection *selection, const char *path, size_t len);

#endif
