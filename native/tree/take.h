/* Takes a snapshot of a worktree. The caller holds the lock of the worktree, and the store's as a sharer. */
#ifndef COPPICE_TREE_TAKE_H
#define COPPICE_TREE_TAKE_H

#include "session.h"

struct take_request {
  const char *worktree, *note;
  const char *const *tags;
  size_t tag_count;
  struct selection only; /* none: all of the worktree */
  const char *engine;    /* NULL: the one that the workspace was made with */
  const char *mounts;    /* the table of mounts; NULL: that of the system */
  /* Taken by a restore, to keep unsaved changes. Nothing is taken when there are none. */
  bool automatic;
  const char *target_hash; /* of what shall be restored */
};

struct taken {
  char id[ID_LEN + 1], at[32], hash[65], engine[16];
  int64_t at_s; /* the same, in seconds since 1970 */
  struct root root;
  uint64_t files, bytes, new_bytes;
  char *record; /* JSON, for the caller to free; NULL: nothing was taken, and the nodes of `root` are there for now */
};

void hash_text(const struct root *root, char out[65]);
/* Whether everything in a worktree is in a snapshot. */
bool is_known(const struct worktree *worktree, const struct scan_result *found, const char *target_hash);
/* Whether this engine clones the whole directory before it looks for changes. */
bool clones_first(const char *engine);
void take(const struct take_request *request, struct taken *taken);

#endif
