/* BLAKE3 (unkeyed, 32 bytes), eight chunks at a time. Content, directories and index are all hashed with it. */
#ifndef COPPICE_TREE_BLAKE3_H
#define COPPICE_TREE_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define HASH_LEN 32
#define BLAKE3_BLOCK (64 * 1024)

struct blake3 {
  uint8_t cvs[54][HASH_LEN]; /* complete subtrees, largest first */
  unsigned cv_count;
  uint64_t blocks; /* whole 64 KiB blocks already folded into `cvs` */
  size_t fill;
  uint8_t *buffer; /* BLAKE3_BLOCK bytes; the last one is kept back, since the root is hashed differently */
};

void blake3_init(struct blake3 *state, uint8_t *buffer);
void blake3_update(struct blake3 *state, const void *data, size_t len);
void blake3_zeros(struct blake3 *state, uint64_t len);
void blake3_finish(struct blake3 *state, uint8_t out[HASH_LEN]);
/* For what is already in memory. */
void blake3_hash(const void *data, size_t len, uint8_t out[HASH_LEN]);

#endif
