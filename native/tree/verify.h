/* Reads a stored tree from end to end and compares everything with its hash. */
#ifndef COPPICE_TREE_VERIFY_H
#define COPPICE_TREE_VERIFY_H

#include "scan.h"

struct verify_result {
  uint64_t contents, nodes; /* read now; what an earlier call of this process found good is not read again */
  struct buf problems;      /* JSON objects with `path` and `problem`, separated by commas */
};

void verify(struct store *store, const struct root *root, bool contents, struct verify_result *result);

#endif
