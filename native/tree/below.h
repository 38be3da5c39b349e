/* Paths inside a tree, followed one name at a time: at any depth, and through no symbolic link. */
#ifndef COPPICE_TREE_BELOW_H
#define COPPICE_TREE_BELOW_H

/* The directory that holds `path` below `root`, for the caller to close; `last` is its name there. -1 with errno. */
int parent_below(int root, const char *path, const char **last);

/* The directory of the last path that was asked for: the next one is often in the same directory. Begins as {.dir = -1}. */
struct near_below {
  int dir;
  char *folder;
};
/* As parent_below(). The directory stays open, and belongs to `near`. */
int near_below(struct near_below *near, int root, const char *path, const char **last);
void near_forget(struct near_below *near);

#endif
