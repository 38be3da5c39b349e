/* Brings a worktree to what a snapshot holds. The caller holds the lock of the worktree, and the store's as a sharer. */
#ifndef COPPICE_TREE_RESTORE_WORKTREE_H
#define COPPICE_TREE_RESTORE_WORKTREE_H

#include "restore.h"
#include "take.h"

struct restore_request {
  const char *worktree, *target; /* an id */
  struct selection only;         /* none: all that the snapshot holds */
  bool loose;                    /* it need not be on the disk when this returns */
  const char *step;              /* "undo" or "redo"; NULL: neither */
  bool discard;                  /* do not keep what no snapshot holds */
  const char *engine, *mounts;   /* for what is kept: as in take_request */
};

/* The id of the snapshot that keeps what was not saved goes to `saved`; its `record` is NULL where none was needed. */
void restore_worktree(const struct restore_request *request, struct taken *saved, struct restore_result *restored);

/* What a worktree holds now: its contents are not stored, and its nodes are there for now. */
void peek(const char *worktree, const struct selection *only, bool until_change, struct scan_result *found);

/* Says how many owners and attributes could not be restored, where there are any. */
void tell_refused(const struct refused *refused);

#endif
