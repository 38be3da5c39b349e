/* The index of a worktree, with a check that is right: whoever owns a workspace can write any of that kind. */
#include "../tree/index.h"
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In place of mmap() in index.c: memory of exactly that length. */
void *fuzz_mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset);
int fuzz_munmap(void *memory, size_t len);

void *fuzz_mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset) {
  (void)at, (void)protection, (void)flags;
  void *memory = must_alloc(len);
  return pread(fd, memory, len, offset) == (ssize_t)len ? memory : MAP_FAILED;
}

int fuzz_munmap(void *memory, size_t len) {
  (void)len;
  free(memory);
  return 0;
}

/* The length of each block is made to fit its parts, where it can: few inputs would have one that does. */
static void fit_blocks(uint8_t *at, size_t left) {
  struct block_header header;
  while (left >= sizeof header) {
    memcpy(&header, at, sizeof header);
    const uint64_t entries = (uint64_t)header.count * (sizeof(struct location) + sizeof(struct stat_key));
    const uint64_t len = sizeof header + (uint64_t)header.path_len + header.canonical_len + entries;
    if (len > left) return;
    header.block_len = len;
    memcpy(at, &header, sizeof header);
    at += len;
    left -= len;
  }
}

/* The version, and the body. The header follows from that. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  FUZZED {
    struct index_header header = {.magic = INDEX_MAGIC, .version = 1 + (data[0] & 1) + (data[0] >> 7), .body_len = size - 1};
    uint8_t *file = must_alloc(sizeof header + size - 1), *body = file + sizeof header;
    memcpy(body, data + 1, size - 1);
    const size_t moment = header.version == 1 ? 0 : sizeof(struct moment);
    if (data[0] & 2 && size - 1 > moment) fit_blocks(body + moment, size - 1 - moment);
    blake3_hasher hasher;
    blake3_hasher_init(&hasher);
    blake3_hasher_update(&hasher, body, size - 1);
    index_check(&hasher, &header, header.check);
    memcpy(file, &header, sizeof header);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fuzz_file(file, sizeof header + size - 1));
    struct index index;
    if (index_open(&index, path)) {
      for (size_t i = 0; i < index.count; i++) {
        const struct block *block = &index.blocks[i];
        fuzz_read_bytes(block->path, block->header->path_len);
        index_find(&index, block->path, block->header->path_len);
        fuzz_read_entries(block->canonical, block->header->canonical_len, block->header->count, block->locations);
        fuzz_read_bytes(block->stats, block->header->count * sizeof *block->stats);
      }
      index_close(&index);
    }
  }
  fuzz_tidy();
  return 0;
}
