#ifndef COPPICE_LIB_REMOVE_H
#define COPPICE_LIB_REMOVE_H

/* Removes what has this name, and all below it, to any depth. 0, or -1 with errno: ESTALE where the tree was moved meanwhile. */
int remove_tree_at(int directory, const char *name);

#endif
