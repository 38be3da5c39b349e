/* Paths inside a tree, followed one name at a time: at any depth, and through no symbolic link. */
#ifndef COPPICE_TREE_BELOW_H
#define COPPICE_TREE_BELOW_H

/* The directory that holds `path` below `root`, for the caller to close; `last` is its name there. -1 with errno. */
int parent_below(int root, const char *path, const char **last);

#endif
