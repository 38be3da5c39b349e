/* When root works in another user's workspace, new files belong to that user. */
#ifndef COPPICE_TREE_OWNER_H
#define COPPICE_TREE_OWNER_H

/* From now on everything that this thread makes, and threads that it starts, belongs to the owner of this directory. */
void make_files_for_owner_of(const char *directory);

#endif
