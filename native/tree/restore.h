/* Makes a directory hold what a stored tree says, touching only what differs, without replacing the directory itself. */
#ifndef COPPICE_TREE_RESTORE_H
#define COPPICE_TREE_RESTORE_H

#include "metadata.h"
#include "scan.h"

struct restore_options {
  const char *directory;
  const char *staging; /* an empty directory; on the same filesystem where that is possible */
  bool staged_inside;  /* it is in `directory`, and removed before the scan */
  const char *kept;    /* where ignored files go that stand in the way; made when needed, or left out where they cannot be moved there */
  const char *tree;    /* the snapshot as a whole directory, or NULL */
  struct root from;    /* what the directory holds now */
  struct root to;
  struct selection selection;
  bool durable; /* new content is on the disk before the first file is replaced, and everything when this returns */
};

struct restore_result {
  uint64_t written, removed, adjusted; /* entries */
  uint64_t moved_aside;
  struct refused refused;
  struct map files;   /* struct written by inode, for the scan that follows */
  struct map touched; /* directories in which something was changed, and all above them, by path */
};

/* `again` names the index; what the scan after the restore found goes to `found`, and the index that it made is of the snapshot. */
void restore(struct store *store, const struct restore_options *options, const struct scan_options *again, struct restore_result *result,
             struct scan_result *found);

#endif
