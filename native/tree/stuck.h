/* What a restore could not change is found before it changes anything. */
#ifndef COPPICE_TREE_STUCK_H
#define COPPICE_TREE_STUCK_H

/* Dies when the entry at `path` below `root` cannot be replaced, removed or made: it or its directory is immutable, or
   the directory is somebody else's. An entry that is not there is fine. */
void refuse_stuck(int root, const char *path);

#endif
