/* Walks a directory, finds what changed since the index was made, hashes and stores only that, and names the whole. */
#ifndef COPPICE_TREE_SCAN_H
#define COPPICE_TREE_SCAN_H

#include "index.h"
#include "selection.h"

/* A file that a restore has just written, by inode: what it holds is known. */
struct written {
  uint8_t hash[HASH_LEN];
  uint64_t size;
  int64_t mtime_ns;
  bool has_xattrs;
};

struct scan_options {
  const char *directory;
  const char *index_path;     /* read */
  const char *new_index_path; /* written when something changed; NULL: never */
  const char *basis;
  bool locations_hold; /* what the index says about places in the store can be trusted */
  bool keep;           /* store contents, not only their names */
  bool from_disk;      /* the files are hardly in memory */
  bool whole_tree;     /* of a read-only snapshot of a whole directory */
  const char *live;    /* that directory itself; NULL: it is not at hand */
  bool until_change;   /* only look whether something is not as the index has it: then there is no root */
  struct selection selection;
  const struct root *prefer; /* after a restore: the tree whose places the index shall name */
  const struct map *written;
  bool no_xattrs_refused;    /* written files have the extended attributes that they should have */
  const struct map *touched; /* after a restore: directories that are not in here are as the index says */
  int64_t moment_ns;         /* the filesystem's time before the walk; 0: ask it */
  int64_t caught_from;       /* of a clone: its files that changed since then may lack what was being written; 0: none does */
  bool index_later;          /* the new index is there when index_settle() has returned: it is written while the disk is waited for */
};

struct scan_result {
  struct root root;
  uint64_t files, directories, bytes, hashed, sockets, unsettled;
  bool index_changed, stopped;
  char *caught;  /* a file of a clone that is not whole; owned by the caller */
  char *refused; /* something of a clone that we may not read; owned by the caller */
  char *nested;  /* a btrfs subvolume inside, which a snapshot of the whole does not hold; owned by the caller */
};

void scan(struct store *store, const struct scan_options *options, struct scan_result *result);
/* The filesystem's own clock, which need not be ours. */
int64_t filesystem_moment(struct store *store);
/* What changed at or after this time, seen from a moment, may change again without a new time: it is read again by the next scan. */
int64_t racy_since(int64_t moment_ns);

#endif
