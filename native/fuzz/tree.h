/* For the parts of coppice-tree: giving up comes back to the harness. */
#ifndef COPPICE_FUZZ_TREE_H
#define COPPICE_FUZZ_TREE_H

#include "../tree/node.h"
#include "harness.h"

/* Reads every byte that a node or a block says it has. */
void fuzz_read_entries(const uint8_t *canonical, size_t canonical_len, uint32_t count, const struct location *locations);
void fuzz_read_bytes(const void *bytes, size_t len);

#endif
