/* Asks btrfs which inodes of a subvolume changed since another moment, without reading the others. */
#ifndef COPPICE_TREE_SINCE_H
#define COPPICE_TREE_SINCE_H

#include "common.h"

/* A subvolume, which has its uuid for life, as it was at the end of a transaction; 0: unknown. */
struct __attribute__((packed)) moment {
  uint8_t subvolume[16];
  uint64_t transaction;
};

/* The moment that a read-only clone shows; false when it cannot be found out. */
bool moment_of_clone(int clone, struct moment *out);

/*
 * The inodes of a clone that were made or changed since `before`, each as a key with 0. Answers false when it cannot be told: to read
 * the filesystem's trees takes CAP_SYS_ADMIN; or when there are more than `most`.
 */
bool changed_since(int clone, const struct moment *before, size_t most, struct map *inodes);

/* Whether the content of an inode changed. Times do not always tell: one long write changes them once, when it begins. */
bool rewritten_since(const struct map *inodes, uint64_t ino);

#endif
