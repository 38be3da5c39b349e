/* Finds entries that a restore could not change, before it changes anything. */
#ifndef COPPICE_TREE_STUCK_H
#define COPPICE_TREE_STUCK_H

/* Must be called first. Mounts below `root` are refused. */
void stuck_below(int root);
/* Dies when the entry `name` of `dir` cannot be replaced, removed or made, because it is immutable or a mount. An entry that is not there
   is fine. */
void refuse_stuck_entry(int dir, const char *name, const char *path);
/* Dies when no entry of `dir` can be changed, because the directory is immutable, a mount, or somebody else's. `path` is the entry that
   is to be changed. */
void refuse_stuck_directory(int dir, const char *path);

#endif
