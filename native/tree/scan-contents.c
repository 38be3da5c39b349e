#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "below.h"
#include "content.h"
#include "jobs.h"
#include "scan-walk.h"

#define PAGE 4096
/* Fewer small files are read before another thread has woken up. */
#define WORTH_THREADS 8
#define AT_ONCE 16

static struct location find_known(void *context, const uint8_t hash[HASH_LEN]) {
  struct walk *walk = context;
  uint64_t a, b;
  memcpy(&a, hash, 8);
  memcpy(&b, hash + 8, 8);
  const struct location *found = map_get(&walk->known, a, b);
  return found ? *found : (struct location){0};
}

static bool has_large(void *context, uint64_t size) {
  struct walk *walk = context;
  return map_get(&walk->large_sizes, size, 1);
}

static void note_once(char **where, const char *path) {
  char *text = must_strdup(path), *none = NULL;
  if (!__atomic_compare_exchange_n(where, &none, text, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) free(text);
}

/* The modes in a clone cannot be changed, so the worktree is read instead. */
bool note_refused(void *context, const char *path) {
  struct walk *walk = context;
  if (!walk->options->whole_tree || !walk->options->live) return false;
  note_once(&walk->result->refused, path);
  return true;
}

static void build_known(struct walk *walk) {
  if (walk->known_built || !walk->have_index || !walk->options->locations_hold) return;
  walk->known_built = true;
  for (size_t i = 0; i < walk->index.count; i++) {
    const struct block *block = &walk->index.blocks[i];
    struct cursor cursor;
    for (cursor_start(&cursor, block->canonical, block->header->canonical_len); cursor.valid; cursor_next(&cursor)) {
      const struct location *at = &block->locations[cursor.index];
      if (cursor.entry.record->type != 'f' || !at->pack) continue;
      uint64_t a, b;
      memcpy(&a, cursor.entry.record->hash, 8);
      memcpy(&b, cursor.entry.record->hash + 8, 8);
      *map_at(&walk->known, a, b) = (void *)at;
      if (at->pack == IN_BLOB) *map_at(&walk->large_sizes, cursor.entry.record->size, 1) = walk;
    }
  }
}

/*
 * A clone on btrfs can hold the name of a file without its last bytes, mostly without any, when the file was being written. Compares
 * `item`, of which `content` was read in the clone, with the file in the worktree to find such files.
 */
static bool is_caught(struct walk *walk, const char *path, const struct item *item, const struct content *content,
                      struct content_memory *memory) {
  if (item->ctime_ns < walk->options->caught_from) return false;
  const char *name;
  const int dir = parent_below(walk->origin, path, &name);
  struct item live = {.name = (char *)name};
  if (dir < 0) live.error = errno;
  else item_look(dir, &live);
  bool caught;
  if (live.error || live.ino != item->ino || live.type != 'f') {
    /* The file in the worktree is gone, so there is nothing to compare with. Files that were cut short end at a page boundary. */
    caught = content->size % PAGE == 0;
  } else if (live.ctime_ns != item->ctime_ns) {
    /* Somebody is still writing it. Only a new file that is empty in the clone is surely cut short. */
    caught = content->size == 0 && live.size > 0;
  } else {
    struct content now;
    const struct known_contents nothing = {0};
    caught = content->size != live.size;
    if (!caught && content->size && content_take(walk->store, dir, name, -1, path, false, &nothing, memory, &now))
      caught = !now.unsettled && now.stat.st_ino == item->ino && memcmp(now.hash, content->hash, HASH_LEN) != 0;
  }
  if (dir >= 0) close(dir);
  return caught;
}

struct take_job {
  struct walk *walk;
  int fd;
  int live; /* the same directory where the clone was made from, or -1 */
  struct item **items;
  size_t count, at_once;
};

/*
 * Reads a file of a clone where it was cloned from: there its pages are in memory. False where that may hold something else: it must have
 * the times that it has in the clone, and these must be older than the clone by more than a tick of the clock.
 */
static bool take_from_live(struct walk *walk, int live, const char *path, struct item *item, struct content_memory *memory) {
  if (item->ctime_ns >= walk->racy_from) return false;
  struct content content;
  const struct known_contents nothing = {walk, NULL, note_refused, NULL};
  if (!content_take(walk->store, live, item->name, -1, path, false, &nothing, memory, &content)) return false;
  struct item now = *item;
  item_stat(&now, &content.stat);
  if (content.unsettled || now.ino != item->ino || now.ctime_ns != item->ctime_ns || now.mtime_ns != item->mtime_ns ||
      now.size != item->size)
    return false;
  item->no_xattrs = content.no_xattrs;
  memcpy(item->hash, content.hash, HASH_LEN);
  item->location = (struct location){.len = content.location.len};
  return true;
}

static void take_one(struct take_job *job, struct item *item, int ahead, struct content_memory *memory) {
  struct walk *walk = job->walk;
  char short_path[1024], *path = short_path;
  const size_t len = walk->path.len;
  if (len + item->name_len + 2 > sizeof short_path) path = must_alloc(len + item->name_len + 2);
  memcpy(path, walk->path.data, len);
  if (len) path[len] = '/';
  memcpy(path + len + (len ? 1 : 0), item->name, item->name_len + 1);
  struct content content;
  const struct known_contents known = {walk, find_known, note_refused, has_large};
  if (job->live >= 0 && take_from_live(walk, job->live, path, item, memory)) {
    if (path != short_path) free(path);
    return;
  }
  if (!content_take(walk->store, job->fd, item->name, ahead, path, walk->options->keep, &known, memory, &content)) {
    item->gone = true;
    if (path != short_path) free(path);
    return;
  }
  const bool same = item->old && item->old->type == 'f' && item->location.pack && memcmp(content.hash, item->hash, HASH_LEN) == 0;
  item_stat(item, &content.stat);
  if (walk->origin >= 0 && walk->options->caught_from && is_caught(walk, path, item, &content, memory)) {
    note_once(&walk->result->caught, path);
  }
  item->size = content.size;
  item->unsettled = content.unsettled;
  item->no_xattrs = content.no_xattrs;
  memcpy(item->hash, content.hash, HASH_LEN);
  /* Touched, but with the same content: it stays where it is stored. */
  const uint64_t sparse = content.location.len;
  if (!same) item->location = content.location;
  else item->location.len = sparse;
  if (path != short_path) free(path);
}

/* Some files at once, where they come from the disk: all are asked for before the first one is read. */
static void take_some(void *context, size_t at, struct content_memory *memory) {
  struct take_job *job = context;
  const size_t first = at * job->at_once, end = first + job->at_once < job->count ? first + job->at_once : job->count;
  int ahead[AT_ONCE];
  for (size_t i = first; i < end; i++) ahead[i - first] = job->at_once > 1 ? content_ahead(job->fd, job->items[i]->name) : -1;
  for (size_t i = first; i < end; i++) take_one(job, job->items[i], ahead[i - first], memory);
}

void take_contents(struct walk *walk, int fd, struct item *items, size_t count) {
  struct item **list = NULL;
  size_t jobs = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    struct item *item = &items[i];
    if (!item->changed || item->type != 'f') continue;
    if (walk->options->written) {
      const struct written *written = map_get(walk->options->written, item->ino, 1);
      if (written && written->size == item->size && written->mtime_ns == item->mtime_ns) {
        memcpy(item->hash, written->hash, HASH_LEN);
        item->location = (struct location){0};
        item->no_xattrs = walk->options->no_xattrs_refused && !written->has_xattrs;
        continue;
      }
    }
    list = must_realloc(list, (jobs + 1) * sizeof *list);
    list[jobs++] = item;
    bytes += item->size;
  }
  if (jobs) {
    if (walk->options->keep) build_known(walk);
    walk->result->hashed += jobs;
    const size_t at_once = walk->options->from_disk ? AT_ONCE : 1;
    struct take_job job = {walk, fd, walk->live < 0 ? -1 : open_here(walk, walk->live), list, jobs, at_once};
    jobs_run(take_some, &job, (jobs + at_once - 1) / at_once, jobs >= WORTH_THREADS || bytes > 128 * 1024);
    if (job.live >= 0) close(job.live);
  }
  free(list);
}
