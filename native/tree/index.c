#define _GNU_SOURCE
#include "index.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 3

static bool read_blocks(struct index *index) {
  const uint8_t *at = index->mapped + sizeof index->header, *end = index->mapped + index->mapped_len;
  if (index->header.version >= 2) {
    if ((size_t)(end - at) < sizeof index->moment) return false;
    memcpy(&index->moment, at, sizeof index->moment);
    at += sizeof index->moment;
  }
  size_t cap = 0;
  while (at < end) {
    const struct block_header *header = (const struct block_header *)at;
    if ((size_t)(end - at) < sizeof *header || header->block_len > (size_t)(end - at)) return false;
    /* A hostile index can have a correct checksum: check every length. */
    const uint64_t entries = (uint64_t)header->count * (sizeof(struct location) + sizeof(struct stat_key));
    if (header->block_len != sizeof *header + (uint64_t)header->path_len + header->canonical_len + entries) return false;
    if (index->count == cap) {
      cap = cap ? cap * 2 : 64;
      index->blocks = must_realloc(index->blocks, cap * sizeof *index->blocks);
    }
    struct block *block = &index->blocks[index->count++];
    block->header = header;
    block->path = (const char *)(header + 1);
    block->canonical = (const uint8_t *)block->path + header->path_len;
    block->locations = (const struct location *)(block->canonical + header->canonical_len);
    block->stats = (const struct stat_key *)(block->locations + header->count);
    block->kept = block->stale = false;
    if (!node_is_sound(block->canonical, header->canonical_len, header->count)) return false;
    at += header->block_len;
  }
  for (size_t i = 0; i < index->count; i++) {
    const struct block *block = &index->blocks[i];
    *map_at(&index->by_path, bytes_key(block->path, block->header->path_len), block->header->path_len) = &index->blocks[i];
  }
  return true;
}

/* The index that this process has read or written last. It is not hashed a second time. */
static struct stat sound;

static bool is_sound(const struct stat *stat) {
  return stat->st_ino == sound.st_ino && stat->st_dev == sound.st_dev && stat->st_size == sound.st_size &&
         stat->st_mtim.tv_sec == sound.st_mtim.tv_sec && stat->st_mtim.tv_nsec == sound.st_mtim.tv_nsec;
}

void index_check(blake3_hasher *hasher, const struct index_header *header, uint8_t check[HASH_LEN]) {
  if (header->version >= 3) {
    blake3_hasher_update(hasher, &header->version, sizeof header->version);
    blake3_hasher_update(hasher, &header->body_len, sizeof header->body_len);
    blake3_hasher_update(hasher, header->root_hash, sizeof header->root_hash);
    blake3_hasher_update(hasher, &header->root, sizeof header->root);
  }
  blake3_hasher_finalize(hasher, check, HASH_LEN);
}

bool index_open(struct index *index, const char *path) {
  memset(index, 0, sizeof *index);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat stat;
  bool good = fstat(fd, &stat) == 0 && (size_t)stat.st_size >= sizeof index->header;
  if (good) {
    index->mapped_len = (size_t)stat.st_size;
    index->mapped = mmap(NULL, index->mapped_len, PROT_READ, MAP_PRIVATE, fd, 0);
    good = index->mapped != MAP_FAILED;
    if (!good) index->mapped = NULL;
  }
  close(fd);
  if (good) {
    memcpy(&index->header, index->mapped, sizeof index->header);
    good = index->header.magic == INDEX_MAGIC && index->header.version >= 1 && index->header.version <= VERSION &&
           index->header.body_len + sizeof index->header == index->mapped_len;
  }
  if (good && !is_sound(&stat)) {
    uint8_t check[HASH_LEN];
    blake3_hasher hasher;
    blake3_hasher_init(&hasher);
    blake3_hasher_update(&hasher, index->mapped + sizeof index->header, index->header.body_len);
    index_check(&hasher, &index->header, check);
    good = memcmp(check, index->header.check, HASH_LEN) == 0;
  }
  if (good) sound = stat;
  good = good && read_blocks(index);
  if (!good) index_close(index);
  return good;
}

void index_close(struct index *index) {
  if (index->mapped) munmap(index->mapped, index->mapped_len);
  free(index->blocks);
  free(index->by_path.slots);
  memset(index, 0, sizeof *index);
}

struct block *index_find(struct index *index, const char *path, size_t len) {
  struct block *block = map_get(&index->by_path, bytes_key(path, len), len);
  return block && memcmp(block->path, path, len) == 0 ? block : NULL;
}

void index_add_block(struct buf *blocks, const char *path, size_t path_len, const uint8_t hash[HASH_LEN], struct location at,
                     uint32_t flags, const uint8_t *canonical, size_t canonical_len, const struct location *locations,
                     const struct stat_key *stats, uint32_t count) {
  struct block_header header = {
      .path_len = (uint32_t)path_len, .count = count, .canonical_len = (uint32_t)canonical_len, .flags = flags, .location = at};
  header.block_len = sizeof header + path_len + canonical_len + (uint64_t)count * (sizeof *locations + sizeof *stats);
  memcpy(header.hash, hash, HASH_LEN);
  buf_add(blocks, &header, sizeof header);
  buf_add(blocks, path, path_len);
  buf_add(blocks, canonical, canonical_len);
  buf_add(blocks, locations, count * sizeof *locations);
  buf_add(blocks, stats, count * sizeof *stats);
}

void index_write(const char *path, const struct index *old, const struct buf *fresh, const uint8_t root_hash[HASH_LEN],
                 struct location root, const char *basis, const struct moment *moment) {
  struct index_header header = {.magic = INDEX_MAGIC, .version = VERSION, .body_len = sizeof *moment, .root = root};
  memcpy(header.root_hash, root_hash, HASH_LEN);
  strncpy(header.basis, basis, sizeof header.basis - 1);
  unlink(path);
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create", path);
  write_all(fd, &header, sizeof header, path);
  write_all(fd, moment, sizeof *moment, path);
  blake3_hasher check;
  blake3_hasher_init(&check);
  blake3_hasher_update(&check, moment, sizeof *moment);
  for (size_t i = 0; i < old->count; i++) {
    if (!old->blocks[i].kept) continue;
    /* Blocks that follow each other are written in one call. */
    const uint8_t *from = (const uint8_t *)old->blocks[i].header;
    size_t len = old->blocks[i].header->block_len;
    while (i + 1 < old->count && old->blocks[i + 1].kept && len < (4u << 20)) len += old->blocks[++i].header->block_len;
    write_all(fd, from, len, path);
    blake3_hasher_update(&check, from, len);
    header.body_len += len;
  }
  write_all(fd, fresh->data, fresh->len, path);
  blake3_hasher_update(&check, fresh->data, fresh->len);
  header.body_len += fresh->len;
  index_check(&check, &header, header.check);
  if (pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) die_errno("write", path);
  if (fstat(fd, &sound) != 0) die_errno("stat", path);
  close(fd);
}

static struct {
  bool under_way;
  pthread_t thread;
  const char *path, *basis;
  struct index old;
  struct buf fresh;
  uint8_t root_hash[HASH_LEN];
  struct location root;
  struct moment moment;
} aside;

static void *write_aside(void *unused) {
  index_write(aside.path, &aside.old, &aside.fresh, aside.root_hash, aside.root, aside.basis, &aside.moment);
  return unused;
}

void index_write_aside(const char *path, struct index *old, struct buf *fresh, const uint8_t root_hash[HASH_LEN], struct location root,
                       const char *basis, const struct moment *moment) {
  aside.path = path;
  aside.moment = *moment;
  aside.basis = basis;
  aside.old = *old;
  aside.fresh = *fresh;
  aside.root = root;
  memcpy(aside.root_hash, root_hash, HASH_LEN);
  memset(old, 0, sizeof *old);
  memset(fresh, 0, sizeof *fresh);
  aside.under_way = true;
  if (pthread_create(&aside.thread, NULL, write_aside, NULL) != 0) die("limit_reached", "no more threads");
}

void index_settle(void) {
  if (!aside.under_way) return;
  pthread_join(aside.thread, NULL);
  aside.under_way = false;
  index_close(&aside.old);
  free(aside.fresh.data);
}
