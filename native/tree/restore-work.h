/* What the parts of a restore share: finding the differences (restore.c), writing new files aside (restore-stage.c) and putting them in
   place (restore-place.c). */
#ifndef COPPICE_TREE_RESTORE_WORK_H
#define COPPICE_TREE_RESTORE_WORK_H

#include "below.h"
#include "restore.h"

struct staged {
  struct record record; /* without what follows it */
  struct location location;
  char *path;
  uint8_t *xattrs;
  uint64_t ino;
};

/* A file that is cloned into the worktree together with others of its directory. */
struct placing {
  struct staged *staged;
  size_t number; /* of `staged` */
  struct entry new, old;
  bool had_old;
};

struct work {
  struct store *store;
  const struct restore_options *options;
  struct restore_result *result;
  bool applying;
  bool across; /* nothing can be renamed from the staging directory, which is on another filesystem or subvolume */
  bool clones; /* files come straight from the stored tree, which shares its blocks with them */
  int staging, tree, root;
  struct near_below near; /* in the stored tree */
  struct staged *staged;
  size_t staged_count, staged_cap, next_staged;
  int group; /* the part of the staging directory that holds the next file; -1: not opened yet */
  struct placing *placing;
  size_t placing_count, placing_cap;
  struct map replaced; /* paths of files that are new inodes: hard links to them are made anew */
  struct map linked;   /* files with several names of which the first had its turn */
  struct buf path;
};

/* A directory of the worktree. */
struct spot {
  int fd;          /* -1: it is not there yet */
  bool can_change; /* it was checked that its entries can be changed */
  int inherits;    /* whether new files inherit an ACL from it; -1: not asked yet */
};

size_t work_push(struct work *work, const char *name, size_t len);
void work_pop(struct work *work, size_t before);
/* The path of the entry whose turn it is. */
const char *here(const struct work *work);
/* The entry at this path, the directory that holds it, and those above, are no longer as they were scanned. */
void mark_touched(struct work *work);
/* For an entry that is in place. */
void set_metadata(struct work *work, int dir, const char *name, const struct record *record, const uint8_t *xattrs);

void stage_later(struct work *work, const struct entry *entry, struct location at);
/* Writes all files that were named to the staging directory, and compares them with their hashes. */
void stage_all(struct work *work);
/* Removes what was not moved, and forgets all of it. */
void stage_forget(struct work *work);
/* The directory that holds the next staged file, and its name there. */
struct staged *stage_next(struct work *work, int *dir, char name[32]);

/* Moves an entry that no snapshot holds out of the way: ignored files, and changes of the last moment. */
void move_aside(struct work *work, int dir, const char *name);
/* Whether a file or a link is not what the scan saw. Nothing else holds what somebody has written to it since. */
bool changed_meanwhile(struct work *work, int dir, const char *name, const struct entry *seen);
/* Makes a directory of ours accessible. Answers the mode that it had where that had to change, else -1. */
int open_up(int dir, const char *name);
/* Gives it that mode again, where nothing else has set another. */
void close_again(struct work *work, int dir, const char *name, int mode);
/* Removes what the scan saw below a directory, and the directory when nothing else is left in it. */
void remove_entry(struct work *work, int dir, const struct entry *entry, struct location at);
/* `old` is the file that the scan saw there, NULL where there was none or it is gone by now. */
void place_file(struct work *work, struct spot *spot, const char *name, const struct entry *entry, const struct entry *old);
/* Files of one directory are cloned together, by several threads: it returns when all that were named so far are in place. */
void place_clones(struct work *work, struct spot *spot);
void place_special(struct work *work, int dir, const char *name, const struct entry *entry);

#endif
