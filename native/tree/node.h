/*
 * A directory as it is stored. `canonical` is what its hash covers: one record per entry, sorted by name, followed by
 * the entry's name, link and extended attributes. Where contents are stored stands beside it, so that the same
 * directory has the same hash wherever its contents lie.
 */
#ifndef COPPICE_TREE_NODE_H
#define COPPICE_TREE_NODE_H

#include "store.h"

#define NODE_MAGIC 0x314e5443u /* CTN1 */
#define NODE_HAS_LINKS 1u

struct __attribute__((packed)) record {
  uint8_t type; /* f file, d directory, l symlink, p fifo, c and b devices, h hard link to the entry that `link` names */
  uint8_t reserved;
  uint16_t name_len;
  uint32_t mode, uid, gid;
  int64_t mtime_ns;
  uint64_t size; /* of a device: its number */
  uint16_t link_len, reserved2;
  uint32_t xattr_len;
  uint8_t hash[HASH_LEN];
};

struct __attribute__((packed)) node_header {
  uint32_t magic, count, canonical_len, flags;
};

/* One entry of a node in memory. */
struct entry {
  const struct record *record;
  const char *name, *link;
  const uint8_t *xattrs;
  size_t size; /* of the record with all that follows it */
};

struct node {
  uint8_t *bytes; /* owned; NULL for a directory that is not there */
  uint32_t count, canonical_len, flags;
  const uint8_t *canonical;
  const struct location *locations;
};

/* A whole snapshot: the node whose only entry is its directory. */
struct root {
  uint8_t hash[HASH_LEN];
  struct location location;
};

/* hash:pack:offset:length, as the log has it. */
#define ROOT_TEXT 128
void root_text(const struct root *root, char out[ROOT_TEXT]);
bool root_parse(const char *text, struct root *out);

struct cursor {
  const uint8_t *at, *end;
  uint32_t index;
  struct entry entry;
  bool valid;
};

void cursor_start(struct cursor *cursor, const uint8_t *canonical, size_t len);
void cursor_next(struct cursor *cursor);
int name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* Whether a directory is exactly `count` whole entries, sorted, each with a name that a filesystem can hold. */
bool node_is_sound(const uint8_t *canonical, size_t len, uint32_t count);
/* Reads a directory and checks its hash and that it is sound; `path` is for the message. */
struct node node_load(struct store *store, struct location at, const uint8_t hash[HASH_LEN], const char *path);
/* The same for the node above the workspace directory: its only entry is that directory, with the name ".". */
struct node node_load_top(struct store *store, const struct root *root);
/* Either, but answers false instead of dying. */
bool node_try_load(struct store *store, struct location at, const uint8_t hash[HASH_LEN], bool top, struct node *node);
void node_free(struct node *node);
struct location node_store(struct store *store, const struct buf *canonical, const struct location *locations, uint32_t count,
                           uint32_t flags);

#endif
