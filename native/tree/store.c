#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PENDING_MAX (4u << 20)
#define OPEN_PACKS 64

static pthread_mutex_t pack_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint64_t id;
  int fd;
  unsigned readers; /* threads that read from it now: it stays open */
} opened[OPEN_PACKS];
static unsigned next_victim;

void store_open(struct store *store, const char *control_dir) {
  memset(store, 0, sizeof *store);
  store->pack_fd = -1;
  store->dir = open(control_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (store->dir < 0) die_errno("open the workspace's control directory", control_dir);
}

static void pack_name(uint64_t id, bool temporary, char out[64]) {
  snprintf(out, 64, "%s/%016llx.pack", temporary ? "tmp" : "packs", (unsigned long long)id);
}

void store_begin_pack(struct store *store, uint64_t pack_id, bool temporary) {
  store->pack_id = pack_id;
  store->pack_is_temporary = temporary;
  store->pack_len = 0;
  store->only_record = false;
  store->pending.len = 0;
  /* A pack with this id may have been begun and dropped before. */
  for (unsigned i = 0; i < OPEN_PACKS; i++) {
    if (opened[i].id != pack_id || !pack_id) continue;
    close(opened[i].fd);
    opened[i].id = 0;
  }
}

static void flush_pending(struct store *store) {
  char name[64];
  pack_name(store->pack_id, store->pack_is_temporary, name);
  if (store->pack_fd < 0) {
    store->pack_fd = openat(store->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (store->pack_fd < 0) die_errno("create", name);
  }
  write_all(store->pack_fd, store->pending.data, store->pending.len, name);
  if (store->pending.len >= PENDING_MAX / 2) (void)sync_file_range(store->pack_fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  store->pending.len = 0;
}

struct location store_append(struct store *store, const void *data, size_t len) {
  pthread_mutex_lock(&pack_lock);
  const struct location at = {store->pack_id, store->pack_len, 0};
  if (store->pending.len + len > PENDING_MAX && store->pending.len) flush_pending(store);
  buf_add(&store->pending, data, len);
  store->pack_len += len;
  __atomic_add_fetch(&store->new_bytes, len, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&pack_lock);
  return at;
}

static int open_pack(struct store *store, uint64_t id) {
  char name[64];
  pack_name(id, false, name);
  int fd = openat(store->dir, name, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    pack_name(id, true, name);
    fd = openat(store->dir, name, O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0 && errno == EACCES) die_errno("open", name);
  return fd;
}

/* A place among the open packs, with one more reader; -1: there is no such pack. There are more places than threads. */
static int begin_reading(struct store *store, uint64_t id) {
  pthread_mutex_lock(&cache_lock);
  int at = -1;
  for (int i = 0; i < OPEN_PACKS && at < 0; i++)
    if (opened[i].id == id) at = i;
  if (at < 0) {
    const int fd = open_pack(store, id);
    while (fd >= 0 && opened[next_victim].readers) next_victim = (next_victim + 1) % OPEN_PACKS;
    if (fd >= 0) {
      at = (int)next_victim;
      next_victim = (next_victim + 1) % OPEN_PACKS;
      if (opened[at].id) close(opened[at].fd);
      opened[at].id = id;
      opened[at].fd = fd;
    }
  }
  if (at >= 0) opened[at].readers++;
  pthread_mutex_unlock(&cache_lock);
  return at;
}

static void end_reading(int at) {
  pthread_mutex_lock(&cache_lock);
  opened[at].readers--;
  pthread_mutex_unlock(&cache_lock);
}

bool store_try_read(struct store *store, struct location at, void *out, size_t len) {
  uint8_t *bytes = out;
  if (at.pack == store->pack_id && store->pack_len) {
    pthread_mutex_lock(&pack_lock);
    if (store->pending.len) flush_pending(store);
    pthread_mutex_unlock(&pack_lock);
  }
  const int place = begin_reading(store, at.pack);
  if (place < 0) return false;
  size_t done = 0;
  while (done < len) {
    const ssize_t got = pread(opened[place].fd, bytes + done, len - done, (off_t)(at.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) die_errno("read", "a pack");
    if (got == 0) break;
    done += (size_t)got;
  }
  end_reading(place);
  return done == len;
}

void store_read(struct store *store, struct location at, void *out, size_t len) {
  if (!store_try_read(store, at, out, len))
    die("corrupt", "the pack %016llx is missing or shorter than it was", (unsigned long long)at.pack);
}

static void blob_name(const uint8_t hash[HASH_LEN], char out[96]) {
  char hex[2 * HASH_LEN + 1];
  hex_of(hash, HASH_LEN, hex);
  snprintf(out, 96, "blobs/%.2s/%s", hex, hex);
}

int store_open_blob(struct store *store, const uint8_t hash[HASH_LEN]) {
  char name[96];
  blob_name(hash, name);
  return openat(store->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

int store_temporary(struct store *store, char name[64], int mode) {
  static unsigned counter;
  snprintf(name, 64, "tmp/new-%d-%u", getpid(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
  const int fd = openat(store->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) die_errno("create", name);
  return fd;
}

struct new_blob {
  char temporary[64];
  uint8_t hash[HASH_LEN];
};

static pthread_mutex_t blob_lock = PTHREAD_MUTEX_INITIALIZER;

void store_add_blob(struct store *store, const char *temporary, const uint8_t hash[HASH_LEN], uint64_t size) {
  struct new_blob blob;
  strcpy(blob.temporary, temporary);
  memcpy(blob.hash, hash, HASH_LEN);
  uint64_t a, b;
  memcpy(&a, hash, 8);
  memcpy(&b, hash + 8, 8);
  pthread_mutex_lock(&blob_lock);
  void **known = map_at(&store->blobs_by_hash, a, b);
  const bool twice = *known;
  *known = store;
  if (!twice) {
    /* The array doubles when it is full: its capacity is the next power of two. */
    if ((store->blob_count & (store->blob_count - 1)) == 0)
      store->blobs = must_realloc(store->blobs, (store->blob_count ? 2 * store->blob_count : 1) * sizeof blob);
    store->blobs[store->blob_count++] = blob;
    __atomic_add_fetch(&store->new_bytes, size, __ATOMIC_RELAXED);
    __atomic_add_fetch(&store->new_contents, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&blob_lock);
  if (twice && unlinkat(store->dir, temporary, 0) != 0) die_errno("remove", temporary);
}

void store_share_blob(struct store *store) { __atomic_store_n(&store->shares_blobs, true, __ATOMIC_RELAXED); }

static void place_blob(struct store *store, const struct new_blob *blob) {
  char name[96], folder[16];
  blob_name(blob->hash, name);
  snprintf(folder, sizeof folder, "%.8s", name);
  if (renameat(store->dir, blob->temporary, store->dir, name) == 0) return;
  if (errno != ENOENT) die_errno("place", name);
  if (mkdirat(store->dir, folder, 0700) != 0 && errno != EEXIST) die_errno("create", folder);
  if (renameat(store->dir, blob->temporary, store->dir, name) != 0) die_errno("place", name);
}

static void sync_all(struct store *store) {
  if (syncfs(store->dir) != 0) die_errno("sync", "the workspace's filesystem");
}

void store_end_pack(struct store *store, bool keep) {
  if (store->pending.len) flush_pending(store);
  if (keep && (store->blob_count || store->shares_blobs)) {
    if (store->blob_count) sync_all(store);
    for (size_t i = 0; i < store->blob_count; i++) place_blob(store, &store->blobs[i]);
    sync_all(store);
  } else if (keep && store->pack_fd >= 0 && !store->only_record && fdatasync(store->pack_fd) != 0) die_errno("sync", "the new pack");
  for (size_t i = 0; !keep && i < store->blob_count; i++) unlinkat(store->dir, store->blobs[i].temporary, 0);
  free(store->blobs);
  free(store->blobs_by_hash.slots);
  store->blobs = NULL;
  store->blob_count = 0;
  memset(&store->blobs_by_hash, 0, sizeof store->blobs_by_hash);
  if (store->pack_fd >= 0) close(store->pack_fd);
  store->pack_fd = -1;
}
