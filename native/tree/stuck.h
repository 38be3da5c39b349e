/* What a restore could not change is found before it changes anything. */
#ifndef COPPICE_TREE_STUCK_H
#define COPPICE_TREE_STUCK_H

/* Comes first. What is mounted below `root` is not part of it. */
void stuck_below(int root);
/* Dies when the entry at `path` below `root` cannot be replaced, removed or made: it or its directory is immutable or
   a mount, or the directory is somebody else's. An entry that is not there is fine. */
void refuse_stuck(int root, const char *path);

#endif
