/* What a worktree looked like when it was last scanned: each directory with its node and the stat of each entry. */
#ifndef COPPICE_TREE_INDEX_H
#define COPPICE_TREE_INDEX_H

#include "node.h"
#include "since.h"

#define INDEX_MAGIC 0x31495443u /* CTI1 */
#define STAT_RACY 1u            /* changed so lately that a later change could look the same: read it again next time */

struct __attribute__((packed)) index_header {
  uint32_t magic, version;
  uint64_t body_len;
  uint8_t check[HASH_LEN]; /* of the body and, from version 3 on, of all of the header but itself and the basis */
  uint8_t root_hash[HASH_LEN];
  struct location root;
  char basis[32]; /* the snapshot whose life keeps the locations alive; the caller's to read and write */
  /* then, from version 2 on: struct moment; then: blocks */
};

struct __attribute__((packed)) stat_key {
  uint64_t ino;
  int64_t ctime_ns;
  uint32_t flags, reserved;
};

struct __attribute__((packed)) block_header {
  uint64_t block_len;
  uint32_t path_len, count, canonical_len, flags;
  uint8_t hash[HASH_LEN];
  struct location location;
  /* then: path, canonical, locations, stat keys */
};

struct block {
  const struct block_header *header;
  const char *path;
  const uint8_t *canonical;
  const struct location *locations;
  const struct stat_key *stats;
  bool kept;
  bool stale; /* something in it, or below, changed since the moment */
};

struct index {
  struct index_header header;
  struct moment moment; /* what has not changed since then is as the index has it */
  uint8_t *mapped;
  size_t mapped_len;
  struct block *blocks;
  size_t count;
  struct map by_path;
};

/* False when there is none or it is damaged: then everything is read again. */
bool index_open(struct index *index, const char *path);
void index_close(struct index *index);
/* What the check of a header must be; the hasher has been given the body. */
void index_check(blake3_hasher *hasher, const struct index_header *header, uint8_t check[HASH_LEN]);
struct block *index_find(struct index *index, const char *path, size_t len);
void index_add_block(struct buf *blocks, const char *path, size_t path_len, const uint8_t hash[HASH_LEN], struct location at,
                     uint32_t flags, const uint8_t *canonical, size_t canonical_len, const struct location *locations,
                     const struct stat_key *stats, uint32_t count);
/* The kept blocks of `old` and the fresh ones. `moment` is that of the new one. */
void index_write(const char *path, const struct index *old, const struct buf *fresh, const uint8_t root_hash[HASH_LEN],
                 struct location root, const char *basis, const struct moment *moment);
/* The same on another thread, which takes over `old` and `fresh`; one at a time. The strings stay the caller's. */
void index_write_aside(const char *path, struct index *old, struct buf *fresh, const uint8_t root_hash[HASH_LEN], struct location root,
                       const char *basis, const struct moment *moment);
/* Waits for that one. */
void index_settle(void);

#endif
