#define _GNU_SOURCE
#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ignore.h"
#include "shut.h"

#define CHUNK (64 * 1024)
#define THREADS_MAX 7
/* Fewer directories are read before another thread has woken up. */
#define WORTH_THREADS 4
/* Directories that were read ahead take memory, and a file descriptor each. */
#define READY_MAX 128
#define READY_ITEMS_MAX 32768

void item_stat(struct item *item, const struct stat *stat) {
  item->ino = stat->st_ino;
  item->dev = stat->st_dev;
  item->size = (uint64_t)stat->st_size;
  item->rdev = stat->st_rdev;
  item->nlink = stat->st_nlink;
  item->mtime_ns = (int64_t)stat->st_mtim.tv_sec * 1000000000 + stat->st_mtim.tv_nsec;
  item->ctime_ns = (int64_t)stat->st_ctim.tv_sec * 1000000000 + stat->st_ctim.tv_nsec;
  item->mode = stat->st_mode & 07777;
  item->uid = stat->st_uid;
  item->gid = stat->st_gid;
}

static uint8_t type_of(uint32_t mode) {
  return S_ISREG(mode)    ? 'f'
         : S_ISDIR(mode)  ? 'd'
         : S_ISLNK(mode)  ? 'l'
         : S_ISFIFO(mode) ? 'p'
         : S_ISCHR(mode)  ? 'c'
         : S_ISBLK(mode)  ? 'b'
                          : 0;
}

static int by_name(const void *a, const void *b) {
  const struct item *x = a, *y = b;
  return name_compare(x->name, x->name_len, y->name, y->name_len);
}

struct raw_name {
  size_t offset, len;
  uint64_t ino;
};

static bool read_names(struct listing *listing) {
  struct buf raw = {0};
  uint8_t *chunk = must_alloc(CHUNK);
  long got;
  while ((got = syscall(SYS_getdents64, listing->fd, chunk, CHUNK)) > 0) {
    for (long at = 0; at < got;) {
      const struct dirent64 *entry = (const struct dirent64 *)(chunk + at);
      at += entry->d_reclen;
      const char *name = entry->d_name;
      if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]))) continue;
      if (strcmp(name, IGNORE_FILE) == 0) listing->has_ignore = true;
      const struct raw_name found = {listing->names.len, strlen(name), entry->d_ino};
      buf_add(&listing->names, name, found.len + 1);
      buf_add(&raw, &found, sizeof found);
    }
  }
  free(chunk);
  listing->count = raw.len / sizeof(struct raw_name);
  listing->items = calloc(listing->count + 1, sizeof *listing->items);
  if (!listing->items) die("limit_reached", "out of memory");
  const struct raw_name *found = (const struct raw_name *)raw.data;
  for (size_t i = 0; i < listing->count; i++) {
    listing->items[i].name = (char *)listing->names.data + found[i].offset;
    listing->items[i].name_len = found[i].len;
    listing->items[i].ino = found[i].ino;
  }
  free(raw.data);
  return got == 0;
}

static bool stopped;

void listing_stop(bool stop) { __atomic_store_n(&stopped, stop, __ATOMIC_RELAXED); }

void listing_read_names(int dir, const char *name, struct listing *out) {
  memset(out, 0, sizeof *out);
  if (__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
    out->fd = -1;
    out->error = ECANCELED;
    return;
  }
  out->fd = open_own(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (out->fd < 0 || !read_names(out)) out->error = errno;
  else qsort(out->items, out->count, sizeof *out->items, by_name);
}

void item_look(int dir, struct item *item) {
  struct stat stat;
  if (fstatat(dir, item->name, &stat, AT_SYMLINK_NOFOLLOW) != 0) {
    item->error = errno;
    return;
  }
  item->type = type_of(stat.st_mode);
  item_stat(item, &stat);
  if (item->type == 'c' || item->type == 'b') item->size = item->rdev;
  if (item->type == 'd') item->size = 0;
}

void listing_read(int dir, const char *name, struct listing *out) {
  listing_read_names(dir, name, out);
  for (size_t i = 0; i < out->count && !out->error; i++) item_look(out->fd, &out->items[i]);
}

void listing_free(struct listing *listing) {
  if (listing->fd >= 0) close(listing->fd);
  free(listing->items);
  free(listing->names.data);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t offered = PTHREAD_COND_INITIALIZER, read_one = PTHREAD_COND_INITIALIZER;
static struct ahead *soonest; /* of those that wait */
static size_t ready, ready_items;
static unsigned threads;

static void forget_waiting(struct ahead *one) {
  if (one->sooner) one->sooner->later = one->later;
  else soonest = one->later;
  if (one->later) one->later->sooner = one->sooner;
}

static bool may_read(void) { return soonest && ready < READY_MAX && ready_items < READY_ITEMS_MAX; }

/* The caller holds the lock. It is released while the directory is read. */
static void read_ahead(struct ahead *one) {
  forget_waiting(one);
  one->state = AHEAD_TAKEN;
  ready++;
  pthread_mutex_unlock(&lock);
  listing_read(one->dir, one->name, &one->listing);
  pthread_mutex_lock(&lock);
  one->state = AHEAD_READY;
  ready_items += one->listing.count;
}

static void *reader(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!may_read()) pthread_cond_wait(&offered, &lock);
    read_ahead(soonest);
    pthread_cond_signal(&read_one);
  }
  return NULL;
}

static void start_threads(void) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const unsigned wanted = processors > THREADS_MAX ? THREADS_MAX : processors > 1 ? (unsigned)processors - 1 : 0;
  for (; threads < wanted; threads++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, reader, NULL) != 0) return;
  }
}

void ahead_offer(struct ahead *list, size_t count) {
  pthread_mutex_lock(&lock);
  if (count >= WORTH_THREADS && !threads) start_threads();
  for (size_t i = count; i-- > 0;) {
    struct ahead *one = &list[i];
    one->state = AHEAD_WAITS;
    one->sooner = NULL;
    one->later = soonest;
    if (soonest) soonest->sooner = one;
    soonest = one;
  }
  if (count >= WORTH_THREADS) pthread_cond_broadcast(&offered);
  pthread_mutex_unlock(&lock);
}

struct listing ahead_listing(struct ahead *one) {
  pthread_mutex_lock(&lock);
  while (one->state != AHEAD_READY) {
    /* Another thread reads this one: read the next one meanwhile. */
    if (one->state == AHEAD_WAITS) read_ahead(one);
    else if (may_read()) read_ahead(soonest);
    else pthread_cond_wait(&read_one, &lock);
  }
  ready--;
  ready_items -= one->listing.count;
  if (may_read()) pthread_cond_signal(&offered);
  pthread_mutex_unlock(&lock);
  return one->listing;
}
