/* Takes a snapshot of a worktree (take-snapshot.ts does the same, and more). */
#ifndef COPPICE_TREE_TAKE_H
#define COPPICE_TREE_TAKE_H

#include "session.h"

struct taken {
  char id[ID_LEN + 1], at[32], hash[65];
  struct root root;
  uint64_t files, bytes, new_bytes;
};

void hash_text(const struct root *root, char out[65]);
/* Whether a worktree holds nothing that no snapshot has. */
bool is_known(const struct scan_result *found, const char *target_hash);
/* False when `target_hash` is given and the worktree holds nothing new; then session.kept_nodes has what it holds. */
bool take(const char *note, const char *const *tags, size_t tag_count, const char *target_hash, struct taken *taken);

#endif
