/* What the parts of a scan share: the walk (scan.c), listings (scan-listings.c), contents (scan-contents.c) and what need not be walked
   (scan-skip.c). */
#ifndef COPPICE_TREE_SCAN_WALK_H
#define COPPICE_TREE_SCAN_WALK_H

#include "listing.h"
#include "scan.h"

/* Up to this many changed inodes, plus a share of all (scan-skip.c), only these are read. With more, a walk is quicker. */
#define SIFTED_MAX 64

struct walk {
  bool skips; /* directories that a restore has not touched */
  bool sifts; /* what has not changed since the moment of the index */
  bool saw_ignore;
  bool saw_other; /* filesystem or subvolume, whose inodes have numbers of their own */
  struct store *store;
  const struct scan_options *options;
  struct scan_result *result;
  struct index index;
  bool have_index;
  struct buf path;
  struct buf fresh; /* index blocks */
  struct map links;
  struct map known; /* contents of the index by hash: what was moved or touched is not stored twice */
  struct map large_sizes;
  bool known_built;
  int64_t racy_from;
  int tree, origin; /* the directory that is walked; the one that it was cloned from, or -1 */
  int live;         /* that one where it can be walked in place of the clone, or -1 */
  uint64_t tree_dev, live_dev;
  struct map since; /* inodes that have */
};

struct tree_ref {
  bool present;
  struct root root;
};

size_t path_push(struct walk *walk, const char *name, size_t len);
void path_pop(struct walk *walk, size_t before);
bool is_as_indexed(const struct item *item, const struct entry *old, const struct stat_key *key);

/* Notes something of a clone that may not be read. True: it is left out, and the worktree is read in place of the clone. */
bool note_refused(void *context, const char *path);
/* Hashes the files among the items that changed, and stores them where they are to be kept. */
void take_contents(struct walk *walk, int fd, struct item *items, size_t count);

/* The directory at the walk's path, below `top`; -1 when it is not there. */
int open_here(struct walk *walk, int top);
bool live_is_as_indexed(struct walk *walk, const struct listing *live);
struct listing clone_listing(struct walk *walk, const struct listing *live);
bool changed_lately(struct walk *walk, uint64_t ino);
struct listing sifted_listing(struct walk *walk, bool sure);

void begin_to_sift(struct walk *walk, const struct moment *now);
bool skip_untouched(struct walk *walk, const struct tree_ref *prefer, struct root *out, uint32_t *flags);
bool skip_unchanged(struct walk *walk, const struct item *item, struct root *out, uint32_t *flags);

#endif
