/* Removes the files that a restore has replaced, in a thread of its own, while the next ones are put in place. */
#ifndef COPPICE_TREE_RETIRE_H
#define COPPICE_TREE_RETIRE_H

#include <stddef.h>

/* Every file with a number of `first` to `end` - 1 as its name, in the directory `group` of `staging`. Files that are not there, or cannot
   be removed, are left to remove_tree(). */
void retire(const char *staging, size_t group, size_t first, size_t end);
/* Returns when everything so far is removed. */
void retire_settle(void);

#endif
