#ifndef COPPICE_TREE_SHA256_H
#define COPPICE_TREE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* FIPS 180-4. For the lines of the log, which are short. */
void sha256(const void *data, size_t len, uint8_t out[32]);

#endif
