/* The bytes of files: hashed and stored on the way in, hashed again on the way out. */
#ifndef COPPICE_TREE_CONTENT_H
#define COPPICE_TREE_CONTENT_H

#include <sys/stat.h>

#include "below.h"
#include "node.h"

struct content {
  uint8_t hash[HASH_LEN];
  uint64_t size;
  struct location location;
  struct stat stat; /* as it was when the content was read */
  bool no_xattrs;   /* it has no extended attributes */
  bool unsettled;   /* it changed each time that it was read: what was read is stored, and it counts as changed */
};

/* Each thread has one. */
struct content_memory {
  uint8_t *bytes;
};
void content_memory_init(struct content_memory *memory);

/* Contents that are known to be stored, and to be on the disk. */
struct known_contents {
  void *context;
  /* Where it is; pack 0: it is not known. */
  struct location (*find)(void *context, const uint8_t hash[HASH_LEN]);
  /* Called for a file that may not be read. True: it is left out. NULL: such a file is an error. */
  bool (*refused)(void *context, const char *path);
  /* Whether one of the large ones has this size. */
  bool (*has_large)(void *context, uint64_t size);
};

/* Opens a file and has the kernel read it meanwhile; -1: content_take() says why not. */
int content_ahead(int dir, const char *name);
/* False when the file has vanished. `ahead` is the file, opened, or -1; it is closed. */
bool content_take(struct store *store, int dir, const char *name, int ahead, const char *path, bool keep,
                  const struct known_contents *known, struct content_memory *memory, struct content *out);

/* Writes a file's content to `fd` (empty, writable) from the store, or from `tree` where a snapshot is a whole directory. */
void content_give(struct store *store, struct near_below *near, int tree, const struct record *record, struct location at, const char *path,
                  int fd, struct content_memory *memory);

/* Opens a file of a snapshot that is a whole directory, for reading; -1 with errno. */
int content_open(struct near_below *near, int tree, const char *path);
/* Dies when such a file is not what its record says. */
void content_compare(struct near_below *near, int tree, const struct record *record, const char *path, struct content_memory *memory);

/* NULL when the stored content matches its record, else what is wrong with it. */
const char *content_check(struct store *store, const struct record *record, struct location at, struct content_memory *memory);

#endif
