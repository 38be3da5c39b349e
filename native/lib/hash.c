#include "hash.h"

void blake3_hash(const void *data, size_t len, uint8_t out[HASH_LEN]) {
  blake3_hasher hasher;
  blake3_hasher_init(&hasher);
  blake3_hasher_update(&hasher, data, len);
  blake3_hasher_finalize(&hasher, out, HASH_LEN);
}

void blake3_zeros(blake3_hasher *hasher, uint64_t len) {
  static const uint8_t zeros[256 * 1024];
  while (len) {
    const size_t here = len < sizeof zeros ? (size_t)len : sizeof zeros;
    blake3_hasher_update(hasher, zeros, here);
    len -= here;
  }
}
