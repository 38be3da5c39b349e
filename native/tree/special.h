/* Entries that are not files or directories, and hard links, made as a node describes them. */
#ifndef COPPICE_TREE_SPECIAL_H
#define COPPICE_TREE_SPECIAL_H

#include "node.h"

/* A symbolic link, a FIFO or a device, without its metadata. Dies when it cannot be made. */
void special_create(int dir, const char *name, const struct entry *entry, const char *path);
/* A hard link to the file that `entry` names, below `root`. False when that file is on another filesystem. */
bool special_link(int root, const struct entry *entry, int dir, const char *name, const char *path);

#endif
