/* Makes a further worktree. The caller holds the lock of its name, and the store's as a sharer. */
#ifndef COPPICE_TREE_FORK_H
#define COPPICE_TREE_FORK_H

#include "session.h"

/* `base` is the id of what it shall hold; NULL: nothing. `mode` is that of its directory. */
void fork_worktree(const char *name, const char *base, unsigned mode);

/* What a snapshot holds, or some paths of it, in a directory of its own that is not there yet, or empty. */
void export_snapshot(const char *id, const char *directory, unsigned mode, const struct selection *only);

/* The directory of a worktree: a subvolume where the workspace uses them. */
void make_payload(const char *path, unsigned mode);

#endif
