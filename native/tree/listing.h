/* A directory's entries with the metadata of each, some of them read ahead of the walk by other threads. */
#ifndef COPPICE_TREE_LISTING_H
#define COPPICE_TREE_LISTING_H

#include <sys/stat.h>

#include "node.h"

struct item {
  char *name;
  size_t name_len;
  uint64_t ino, dev, size, rdev, nlink;
  int64_t mtime_ns, ctime_ns;
  uint32_t mode, uid, gid;
  int error;                     /* why it could not be looked at; 0: it could */
  uint8_t type;                  /* as in a record; 0: a socket */
  bool sure;                     /* it is as the index has it, however young */
  bool changed, unsettled, gone; /* gone: between the listing and the reading */
  bool differs;                  /* changed, and not only so young that it may be */
  bool no_xattrs;                /* it is known to have none */
  const char *link;              /* of a hard link: the path of the first one */
  const struct record *old;      /* in the index */
  uint32_t old_at;
  uint8_t hash[HASH_LEN];
  struct location location;
};
void item_stat(struct item *item, const struct stat *stat);

/* Sorted by the bytes of the names, which live in `names`. */
struct listing {
  int fd, error; /* -1 and why, when the directory could not be opened; `error` alone when it could not be read */
  struct item *items;
  size_t count;
  struct buf names;
  bool has_ignore;
  bool live; /* of the directory that was cloned, and not of the clone */
};
void listing_read(int dir, const char *name, struct listing *out);
/* The names alone, and the inode that each stands for. */
void listing_read_names(int dir, const char *name, struct listing *out);
/* Stops reading ahead: listings that are asked for now end with ECANCELED. */
void listing_stop(bool stop);
/* Fills in the metadata of an item. */
void item_look(int dir, struct item *item);
void listing_free(struct listing *listing);

/* A directory that the walk will reach later. */
struct ahead {
  int dir;
  const char *name;
  enum { AHEAD_WAITS, AHEAD_TAKEN, AHEAD_READY } state;
  struct listing listing;
  struct ahead *later, *sooner;
};
/* Offers directories that will be asked for in this order, before all that were offered earlier. */
void ahead_offer(struct ahead *list, size_t count);
/* The listing of one of them. All must have been asked for before the directory that they are in is closed. */
struct listing ahead_listing(struct ahead *one);

#endif
