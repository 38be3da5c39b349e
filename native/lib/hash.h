/* BLAKE3, 32 bytes, without a key. */
#ifndef COPPICE_LIB_HASH_H
#define COPPICE_LIB_HASH_H

#include <blake3.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_LEN BLAKE3_OUT_LEN

/* For what is already in memory. */
void blake3_hash(const void *data, size_t len, uint8_t out[HASH_LEN]);
/* As many zero bytes as a hole stands for. */
void blake3_zeros(blake3_hasher *hasher, uint64_t len);

#endif
