#define _GNU_SOURCE
#include "content.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "below.h"
#include "progress.h"
#include "shut.h"

#define PIECE (1024 * 1024)
#define DIRECT_UNIT 4096
#define ATTEMPTS 3
#define HOLE_UNIT 4096

void content_memory_init(struct content_memory *memory) {
  if (posix_memalign((void **)&memory->bytes, DIRECT_UNIT, PIECE) != 0) die("limit_reached", "out of memory");
}

static size_t read_some(int fd, uint8_t *out, size_t len, off_t at, const char *path) {
  size_t done = 0;
  while (done < len) {
    const ssize_t got = pread(fd, out + done, len - done, at + (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) die_errno("read", path);
    if (got == 0) break;
    done += (size_t)got;
  }
  return done;
}

static void write_at(int fd, const uint8_t *data, size_t len, off_t at, const char *path) {
  while (len) {
    const ssize_t wrote = pwrite(fd, data, len, at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) die_errno("write", path);
    data += wrote;
    len -= (size_t)wrote;
    at += wrote;
  }
}

/* The file that a copy is written to; -1: no copy is made. */
struct copy {
  int fd;
  bool direct;
};
static const struct copy nowhere = {-1, false};

/*
 * A stored copy does not need to be in the page cache: the file that was read is there already, and filling the cache is most of the cost of
 * a copy. Where the filesystem supports it, whole pieces go straight to the disk. Smaller writes are left to the kernel, which combines
 * them.
 */
static bool set_direct(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

static void copy_piece(struct copy *to, const uint8_t *data, size_t len, uint64_t at, const char *path) {
  if (to->direct) {
    if (len == PIECE && at % DIRECT_UNIT == 0 && pwrite(to->fd, data, len, (off_t)at) == (ssize_t)len) return;
    /* Less than a piece, or the filesystem refused: an ordinary write does it, or gives the reason why not. */
    if (!set_direct(to->fd, false)) die_errno("write", path);
    to->direct = false;
  }
  write_at(to->fd, data, len, (off_t)at, path);
}

/* Hashes a file from end to end, holes as the zeros that they stand for, and copies its data. */
static uint64_t hash_file(int fd, struct copy to, struct content_memory *memory, const char *path, uint8_t hash[HASH_LEN]) {
  blake3_hasher hasher;
  blake3_hasher_init(&hasher);
  uint64_t at = 0;
  for (;;) {
    const off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    uint64_t end;
    if (data < 0 && errno == ENXIO) {
      const off_t size = lseek(fd, 0, SEEK_END);
      if (size > (off_t)at) blake3_zeros(&hasher, (uint64_t)size - at);
      if (size > (off_t)at) at = (uint64_t)size;
      break;
    }
    if (data < 0) end = UINT64_MAX; /* The filesystem cannot tell where holes are: read everything. */
    else {
      if ((uint64_t)data > at) blake3_zeros(&hasher, (uint64_t)data - at);
      at = (uint64_t)data;
      const off_t hole = lseek(fd, data, SEEK_HOLE);
      end = hole < 0 ? UINT64_MAX : (uint64_t)hole;
    }
    bool ended = false;
    while (at < end) {
      const size_t want = end - at < PIECE ? (size_t)(end - at) : PIECE;
      const size_t got = read_some(fd, memory->bytes, want, (off_t)at, path);
      blake3_hasher_update(&hasher, memory->bytes, got);
      if (to.fd >= 0) copy_piece(&to, memory->bytes, got, at, path);
      at += got;
      progress_add(0, got);
      if (got < want) {
        ended = true;
        break;
      }
    }
    if (ended) break;
  }
  if (to.fd >= 0 && ftruncate(to.fd, (off_t)at) != 0) die_errno("write", path);
  blake3_hasher_finalize(&hasher, hash, HASH_LEN);
  return at;
}

/* Whether the blob with the name of this content is there and whole. A damaged one is replaced by the new copy. */
static bool is_stored(struct store *store, const struct content *content, struct content_memory *memory) {
  const int fd = store_open_blob(store, content->hash);
  if (fd < 0) return false;
  struct stat stat;
  uint8_t hash[HASH_LEN];
  const bool whole = fstat(fd, &stat) == 0 && (uint64_t)stat.st_size == content->size &&
                     hash_file(fd, nowhere, memory, "a blob", hash) == content->size && memcmp(hash, content->hash, HASH_LEN) == 0;
  close(fd);
  return whole;
}

/* Hashes a large content. Where it is to be kept and is not known, a copy is made below tmp/, the name of which goes to `copy_name`. */
static void read_large(struct store *store, int fd, const char *path, bool keep, const struct known_contents *known,
                       struct content_memory *memory, struct content *out, char copy_name[64]) {
  out->location = (struct location){0};
  *copy_name = 0;
  struct stat stat;
  if (fstat(fd, &stat) != 0) die_errno("stat", path);
  /* There may be no room for a copy, so a content that may be stored already is hashed first and copied only if it is not. A clone needs
     no room. */
  if (!keep || (!store->reflink && known->has_large(known->context, (uint64_t)stat.st_size))) {
    out->size = hash_file(fd, nowhere, memory, path, out->hash);
    if (keep) out->location = known->find(known->context, out->hash);
    if (!keep || out->location.pack) return;
  }
  const int copy = store_temporary(store, copy_name, 0600);
  /* The clone is hashed, not the file: so the name matches the content even if somebody writes to the file now. */
  if (store->reflink && ioctl(copy, FICLONE, fd) == 0) {
    out->size = hash_file(copy, nowhere, memory, path, out->hash);
  } else {
    if (store->reflink) __atomic_add_fetch(&store->reflinks_refused, 1, __ATOMIC_RELAXED);
    out->size = hash_file(fd, (struct copy){copy, set_direct(copy, true)}, memory, path, out->hash);
    /* Starts the writing while the next file is hashed. store_end_pack() waits for it. */
    (void)sync_file_range(copy, 0, 0, SYNC_FILE_RANGE_WRITE);
  }
  close(copy);
  out->location = known->find(known->context, out->hash);
}

static void drop_copy(struct store *store, char copy_name[64]) {
  if (*copy_name && unlinkat(store->dir, copy_name, 0) != 0) die_errno("remove", copy_name);
  *copy_name = 0;
}

static void keep_large(struct store *store, struct content_memory *memory, struct content *out, char copy_name[64]) {
  if (out->location.pack) drop_copy(store, copy_name);
  else if (is_stored(store, out, memory)) {
    drop_copy(store, copy_name);
    store_share_blob(store);
  } else store_add_blob(store, copy_name, out->hash, out->size);
  out->location.pack = IN_BLOB;
}

static bool same_moment(const struct stat *a, const struct stat *b) {
  return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
         a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void changed_kind(const char *path) { die("wrong_state", "%s became something else while the worktree was read", path); }

int content_ahead(int dir, const char *name) {
  const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd >= 0) (void)posix_fadvise(fd, 0, LARGE_FILE, POSIX_FADV_WILLNEED);
  return fd;
}

bool content_take(struct store *store, int dir, const char *name, int ahead, const char *path, bool keep,
                  const struct known_contents *known, struct content_memory *memory, struct content *out) {
  const int fd = ahead >= 0 ? ahead : open_own(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) return false;
  if (fd < 0 && errno == EACCES && known->refused && known->refused(known->context, path)) return false;
  if (fd < 0 && errno == ELOOP) changed_kind(path);
  if (fd < 0) die_errno("read", path);
  memset(out, 0, sizeof *out);
  /* A program that has mapped the file can write to a dirty page again without changing the file's times. Once writing out of the page has
     begun, the next write changes them. */
  (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  char copy_name[64] = "";
  for (int attempt = 1;; attempt++) {
    drop_copy(store, copy_name);
    struct stat before, after;
    if (fstat(fd, &before) != 0) die_errno("stat", path);
    if (!S_ISREG(before.st_mode)) changed_kind(path);
    const bool large = before.st_size > LARGE_FILE;
    size_t small_len = 0;
    if (large) read_large(store, fd, path, keep, known, memory, out, copy_name);
    else {
      /* If the file grows meanwhile, its times differ afterwards. */
      const size_t most = attempt < ATTEMPTS && before.st_size > 0 ? (size_t)before.st_size : LARGE_FILE + 1;
      small_len = read_some(fd, memory->bytes, most, 0, path);
      out->size = small_len;
      blake3_hash(memory->bytes, small_len, out->hash);
      progress_add(0, small_len);
    }
    if (fstat(fd, &after) != 0) die_errno("stat", path);
    const bool settled = same_moment(&before, &after) && out->size == (uint64_t)after.st_size;
    if (!settled && attempt < ATTEMPTS) continue;
    out->stat = after;
    out->unsettled = !settled;
    const bool outgrew = !large && small_len > LARGE_FILE; /* what fits a pack, on the last attempt */
    if (outgrew) read_large(store, fd, path, keep, known, memory, out, copy_name);
    if (keep && (large || outgrew)) keep_large(store, memory, out, copy_name);
    else if (keep && small_len) {
      out->location = known->find(known->context, out->hash);
      if (!out->location.pack) {
        out->location = store_append(store, memory->bytes, small_len);
        __atomic_add_fetch(&store->new_contents, 1, __ATOMIC_RELAXED);
      }
    }
    out->no_xattrs = flistxattr(fd, NULL, 0) == 0;
    out->location.len = (uint64_t)after.st_blocks * 512 < (uint64_t)after.st_size;
    break;
  }
  close(fd);
  return true;
}

static bool all_zero(const uint8_t *data, size_t len) { return len == 0 || (!data[0] && !memcmp(data, data + 1, len - 1)); }

static bool has_holes(int fd, const char *path) {
  struct stat stat;
  if (fstat(fd, &stat) != 0) die_errno("stat", path);
  return (uint64_t)stat.st_blocks * 512 < (uint64_t)stat.st_size;
}

/* A file with holes and one without them share their stored content. For the one with holes, blocks of zeros become holes again. */
static void dig_holes(int fd, uint64_t size, struct content_memory *memory, const char *path) {
  for (uint64_t at = 0; at < size;) {
    const size_t got = read_some(fd, memory->bytes, size - at < PIECE ? (size_t)(size - at) : PIECE, (off_t)at, path);
    if (!got) break;
    for (size_t from = 0; from < got;) {
      size_t to = from;
      while (to < got && all_zero(memory->bytes + to, got - to < HOLE_UNIT ? got - to : HOLE_UNIT)) to += HOLE_UNIT;
      if (to > from && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at + from), (off_t)(to - from)) != 0) {
        if (errno == EOPNOTSUPP) return; /* a filesystem without holes */
        die_errno("write", path);
      }
      from = to + HOLE_UNIT;
    }
    at += got;
  }
}

static uint64_t hash_small(int fd, size_t size, struct content_memory *memory, const char *path, uint8_t hash[HASH_LEN]) {
  /* One more byte shows a file that is longer than it was. */
  const size_t got = read_some(fd, memory->bytes, size + 1, 0, path);
  blake3_hash(memory->bytes, got, hash);
  progress_add(0, got);
  return got;
}

static void give_large(int from, int fd, const char *path, struct content_memory *memory, uint8_t hash[HASH_LEN], uint64_t *size) {
  if (ioctl(fd, FICLONE, from) == 0) *size = hash_file(fd, nowhere, memory, path, hash);
  else *size = hash_file(from, (struct copy){fd, false}, memory, path, hash);
}

static void refuse_other(const struct record *record, uint64_t size, const uint8_t hash[HASH_LEN], const char *path) {
  if (size != record->size || memcmp(hash, record->hash, HASH_LEN) != 0)
    die("corrupt", "the stored content of %s does not match its hash", path);
}

int content_open(struct near_below *near, int tree, const char *path) {
  const char *name;
  const int dir = near_below(near, tree, path, &name);
  return dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

void content_give(struct store *store, struct near_below *near, int tree, const struct record *record, struct location at, const char *path,
                  int fd, struct content_memory *memory) {
  progress_add(1, 0);
  if (record->size == 0) return;
  uint8_t hash[HASH_LEN];
  uint64_t size = record->size;
  if (tree >= 0 || at.pack == IN_BLOB) {
    const int from = tree >= 0 ? content_open(near, tree, path) : store_open_blob(store, record->hash);
    if (from < 0 && errno == EACCES) die_errno("read the stored content of", path);
    if (from < 0) die("corrupt", "the stored content of %s is missing", path);
    give_large(from, fd, path, memory, hash, &size);
    close(from);
    if (at.len && tree < 0 && size == record->size && !has_holes(fd, path)) dig_holes(fd, size, memory, path);
  } else {
    if (!at.pack || size > PIECE) die("corrupt", "the stored content of %s is nowhere to be found", path);
    store_read(store, at, memory->bytes, size);
    blake3_hash(memory->bytes, size, hash);
    progress_add(0, size);
    if (at.len) {
      for (uint64_t done = 0; done < size; done += 4096) {
        const size_t here = size - done < 4096 ? (size_t)(size - done) : 4096;
        if (!all_zero(memory->bytes + done, here)) write_at(fd, memory->bytes + done, here, (off_t)done, path);
      }
      if (ftruncate(fd, (off_t)size) != 0) die_errno("write", path);
    } else write_at(fd, memory->bytes, size, 0, path);
  }
  refuse_other(record, size, hash, path);
}

void content_compare(struct near_below *near, int tree, const struct record *record, const char *path, struct content_memory *memory) {
  progress_add(1, 0);
  if (record->size == 0) return;
  uint8_t hash[HASH_LEN];
  const int fd = content_open(near, tree, path);
  if (fd < 0 && errno == EACCES) die_errno("read the stored content of", path);
  if (fd < 0) die("corrupt", "the stored content of %s is missing", path);
  uint64_t size;
  if (record->size > LARGE_FILE) size = hash_file(fd, nowhere, memory, path, hash);
  else size = hash_small(fd, (size_t)record->size, memory, path, hash);
  close(fd);
  refuse_other(record, size, hash, path);
}

const char *content_check(struct store *store, const struct record *record, struct location at, struct content_memory *memory) {
  if (record->size == 0) return NULL;
  uint8_t hash[HASH_LEN];
  uint64_t size = record->size;
  if (at.pack == IN_BLOB) {
    const int from = store_open_blob(store, record->hash);
    if (from < 0 && errno == EACCES) die_errno("read the stored content of", "a file");
    if (from < 0) return "its stored content is missing";
    size = hash_file(from, nowhere, memory, "a blob", hash);
    close(from);
  } else {
    if (!at.pack || size > PIECE) return "its stored content is nowhere to be found";
    if (!store_try_read(store, at, memory->bytes, size)) return "its stored content is missing";
    blake3_hash(memory->bytes, size, hash);
    progress_add(0, size);
  }
  return size == record->size && memcmp(hash, record->hash, HASH_LEN) == 0 ? NULL : "its stored content does not match its hash";
}
