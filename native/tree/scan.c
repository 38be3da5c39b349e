#define _GNU_SOURCE
#include "scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"
#include "ignore.h"
#include "jobs.h"
#include "listing.h"
#include "progress.h"
#include "shut.h"
#include "xattrs.h"

/* Kernel clocks tick at 100 Hz at the slowest; what changed within two ticks of the walk's start is read again. */
#define RACY_NS 20000000
#define BTRFS_EMPTY_SUBVOLUME_INO 2
#define SUBVOLUME_ROOT_INO 256
/* Nothing of a clone is in a cache: what changed is looked at there as long as that is less than a part of all. */
#define SIFTED_MAX 64
#define WALK_IS_QUICKER 16
#define PAGE 4096

struct walk {
  bool skips; /* directories that a restore has not touched */
  bool sifts; /* what has not changed since the moment of the index */
  bool saw_ignore;
  bool saw_other; /* filesystem or subvolume, whose inodes have numbers of their own */
  struct store *store;
  const struct scan_options *options;
  struct scan_result *result;
  struct index index;
  bool have_index;
  struct buf path;
  struct buf fresh; /* index blocks */
  struct map links;
  struct map known; /* contents of the index by hash: what was moved or touched is not stored twice */
  struct map large_sizes;
  bool known_built;
  int64_t racy_from;
  int tree, origin; /* the directory that is walked; the one that it was cloned from, or -1 */
  int live;         /* that one where it can be walked in place of the clone, or -1 */
  uint64_t tree_dev, live_dev;
  struct map since; /* inodes that have */
};

struct tree_ref {
  bool present;
  struct root root;
};

void root_text(const struct root *root, char out[ROOT_TEXT]) {
  char hex[65];
  hex_of(root->hash, HASH_LEN, hex);
  snprintf(out, ROOT_TEXT, "%s:%016" PRIx64 ":%" PRIu64 ":%" PRIu64, hex, root->location.pack, root->location.offset, root->location.len);
}

bool root_parse(const char *text, struct root *out) {
  char hex[65];
  return sscanf(text, "%64[0-9a-f]:%" SCNx64 ":%" SCNu64 ":%" SCNu64, hex, &out->location.pack, &out->location.offset,
                &out->location.len) == 4 &&
         hash_from_hex(hex, out->hash);
}

int selected(const struct selection *selection, const char *path, size_t len) {
  if (!selection->count) return INSIDE;
  int best = OUTSIDE;
  for (size_t i = 0; i < selection->count; i++) {
    const char *chosen = selection->paths[i];
    const size_t chosen_len = strlen(chosen);
    if (len >= chosen_len && memcmp(path, chosen, chosen_len) == 0 && (len == chosen_len || path[chosen_len] == '/' || !chosen_len))
      return INSIDE;
    if (len < chosen_len && memcmp(path, chosen, len) == 0 && (len == 0 || chosen[len] == '/')) best = ON_THE_WAY;
  }
  return best;
}

int64_t filesystem_moment(struct store *store) {
  char name[64];
  const int fd = store_temporary(store, name, 0600);
  struct stat stat;
  if (fstat(fd, &stat) != 0) die_errno("stat", name);
  close(fd);
  unlinkat(store->dir, name, 0);
  return (int64_t)stat.st_mtim.tv_sec * 1000000000 + stat.st_mtim.tv_nsec;
}

static size_t path_push(struct walk *walk, const char *name, size_t len) {
  const size_t before = walk->path.len;
  if (before) buf_add(&walk->path, "/", 1);
  buf_add(&walk->path, name, len);
  *buf_room(&walk->path, 1) = 0;
  walk->path.len--;
  return before;
}

static void path_pop(struct walk *walk, size_t before) {
  walk->path.len = before;
  walk->path.data[before] = 0;
}

static bool is_as_indexed(const struct item *item, const struct entry *old, const struct stat_key *key) {
  const struct record *record = old->record;
  if (key->ino != item->ino || key->ctime_ns != item->ctime_ns || (key->flags & STAT_RACY) || record->type != item->type) return false;
  if (item->type == 'h') return strlen(item->link) == record->link_len && memcmp(item->link, old->link, record->link_len) == 0;
  return record->mtime_ns == item->mtime_ns && (item->type == 'l' || record->size == item->size) && record->mode == item->mode &&
         record->uid == item->uid && record->gid == item->gid;
}

/* Drops what is ignored, outside the selection or cannot be stored, and finds each item in the index. */
static size_t examine(struct walk *walk, const struct listing *listing, const struct ignore_list *rules, bool filter,
                      const struct block *block) {
  struct cursor old = {0};
  if (block) cursor_start(&old, block->canonical, block->header->canonical_len);
  size_t kept = 0;
  for (size_t i = 0; i < listing->count; i++) {
    struct item item = listing->items[i];
    const bool is_dir = item.type == 'd';
    if (item.error) {
      if (item.error == ENOENT) continue; /* gone between the listing and now */
      path_push(walk, item.name, item.name_len);
      errno = item.error;
      die_errno("stat", (char *)walk->path.data);
    }
    if (item.dev != walk->tree_dev && item.dev != walk->live_dev) walk->saw_other = true;
    if (rules || filter || item.nlink > 1 || is_dir) {
      const size_t before = path_push(walk, item.name, item.name_len);
      const char *path = (char *)walk->path.data;
      bool skip = rules && ignored(rules, path, is_dir);
      if (filter && !skip) {
        const int part = selected(&walk->options->selection, path, walk->path.len);
        skip = part == OUTSIDE || (part == ON_THE_WAY && !is_dir);
      }
      if (!skip && item.type == 'f' && item.nlink > 1) {
        void **first = map_at(&walk->links, item.ino, item.dev);
        if (*first) item.link = *first;
        else *first = must_strdup(path);
      }
      if (!skip && walk->options->whole_tree && is_dir && item.ino == BTRFS_EMPTY_SUBVOLUME_INO && !walk->result->nested)
        walk->result->nested = must_strdup(path);
      path_pop(walk, before);
      if (skip) continue;
    }
    if (item.link) item.type = 'h';
    if (!item.type) {
      walk->result->sockets++;
      continue;
    }
    while (old.valid && name_compare(old.entry.name, old.entry.record->name_len, item.name, item.name_len) < 0) cursor_next(&old);
    item.changed = item.differs = true;
    if (old.valid && name_compare(old.entry.name, old.entry.record->name_len, item.name, item.name_len) == 0) {
      const struct record *record = old.entry.record;
      const struct stat_key *key = &block->stats[old.index];
      item.old = record;
      item.old_at = old.index;
      const bool rewritten = walk->sifts && rewritten_since(&walk->since, item.ino);
      bool same = item.sure || (!rewritten && is_as_indexed(&item, &old.entry, key));
      if (walk->options->locations_hold) item.location = block->locations[old.index];
      if (same && item.type == 'f' && walk->options->keep && item.size && !item.location.pack) same = false;
      memcpy(item.hash, record->hash, HASH_LEN);
      item.changed = !same;
      const struct stat_key settled = {key->ino, key->ctime_ns, 0, 0};
      item.differs = !same && !is_as_indexed(&item, &old.entry, &settled);
    }
    if (item.type == 'f') walk->result->files++, walk->result->bytes += item.size;
    else if (item.type != 'd') walk->result->files++;
    listing->items[kept++] = item;
  }
  return kept;
}

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

/* A clone cannot be opened up: then the worktree is read in its place. */
static bool note_refused(void *context, const char *path) {
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
 * A clone on btrfs can hold a file whose name was written down when its bytes had not been: then it is shorter than it was, mostly
 * empty. Whether `item`, of which `content` was read in the clone, is such a one, can be seen by the file that it was cloned from.
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
    /* It is gone, and nothing tells what it was. What is cut short ends with a whole page. */
    caught = content->size % PAGE == 0;
  } else if (live.ctime_ns != item->ctime_ns) {
    /* Somebody goes on with it. What was there already may be anything; what was just made is not empty for long. */
    caught = content->size == 0 && live.size > 0;
  } else {
    struct content now;
    const struct known_contents nothing = {0};
    caught = content->size != live.size;
    if (!caught && content->size && content_take(walk->store, dir, name, path, false, &nothing, memory, &now))
      caught = !now.unsettled && now.stat.st_ino == item->ino && memcmp(now.hash, content->hash, HASH_LEN) != 0;
  }
  if (dir >= 0) close(dir);
  return caught;
}

struct take_job {
  struct walk *walk;
  int fd;
  struct item **items;
};

static void take_one(void *context, size_t at, struct content_memory *memory) {
  struct take_job *job = context;
  struct item *item = job->items[at];
  struct walk *walk = job->walk;
  char short_path[1024], *path = short_path;
  const size_t len = walk->path.len;
  if (len + item->name_len + 2 > sizeof short_path) path = must_alloc(len + item->name_len + 2);
  memcpy(path, walk->path.data, len);
  if (len) path[len] = '/';
  memcpy(path + len + (len ? 1 : 0), item->name, item->name_len + 1);
  struct content content;
  const struct known_contents known = {walk, find_known, note_refused, has_large};
  if (!content_take(walk->store, job->fd, item->name, path, walk->options->keep, &known, memory, &content)) {
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
  memcpy(item->hash, content.hash, HASH_LEN);
  /* Touched, but with what it held before: it stays where it is stored. */
  const uint64_t sparse = content.location.len;
  if (!same) item->location = content.location;
  else item->location.len = sparse;
  if (path != short_path) free(path);
}

static void take_contents(struct walk *walk, int fd, struct item *items, size_t count) {
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
    struct take_job job = {walk, fd, list};
    jobs_run(take_one, &job, jobs, bytes > 128 * 1024);
  }
  free(list);
}

/* False when it is a symbolic link that is gone. */
static bool add_record(struct walk *walk, int fd, const struct item *item, struct buf *canonical) {
  struct record record = {.type = item->type, .name_len = (uint16_t)item->name_len};
  struct buf link = {0}, xattrs = {0};
  if (item->type == 'h') buf_add(&link, item->link, strlen(item->link));
  else {
    record.mode = item->type == 'l' ? 0777 : item->mode;
    record.uid = item->uid;
    record.gid = item->gid;
    record.mtime_ns = item->mtime_ns;
    record.size = item->type == 'l' ? 0 : item->size;
    if (item->type == 'f' || item->type == 'd') memcpy(record.hash, item->hash, HASH_LEN);
    const size_t before = path_push(walk, item->name, item->name_len);
    const char *path = (char *)walk->path.data;
    if (item->type == 'l') {
      char target[4097];
      const ssize_t len = readlinkat(fd, item->name, target, sizeof target);
      if (len < 0 && errno == ENOENT) {
        path_pop(walk, before);
        return false;
      }
      if (len < 0 && errno == EINVAL) die("wrong_state", "%s became something else while the worktree was read", path);
      if (len < 0) die_errno("read the symbolic link", path);
      buf_add(&link, target, (size_t)len);
    }
    xattrs_read(fd, item->name, path, &xattrs);
    path_pop(walk, before);
  }
  if (item->name_len > NAME_MAX) die("unsupported", "the name is longer than %d bytes: %s", NAME_MAX, item->name);
  if (link.len > UINT16_MAX) die("unsupported", "the path of a hard link is longer than 65535 bytes: %s", item->name);
  record.link_len = (uint16_t)link.len;
  record.xattr_len = (uint32_t)xattrs.len;
  buf_add(canonical, &record, sizeof record);
  buf_add(canonical, item->name, item->name_len);
  buf_add(canonical, link.data, link.len);
  buf_add(canonical, xattrs.data, xattrs.len);
  free(link.data);
  free(xattrs.data);
  return true;
}

static struct stat_key key_of(const struct walk *walk, const struct item *item) {
  const bool racy = item->unsettled || item->ctime_ns >= walk->racy_from;
  return (struct stat_key){item->ino, item->ctime_ns, racy ? STAT_RACY : 0, 0};
}

static bool scan_dir(struct walk *walk, struct listing listing, struct ignore_list *above, bool filter, const struct tree_ref *prefer,
                     struct root *out, uint32_t *flags_out);
static bool skip_untouched(struct walk *walk, const struct tree_ref *prefer, struct root *out, uint32_t *flags);
static bool skip_unchanged(struct walk *walk, const struct item *item, struct root *out, uint32_t *flags);

/*
 * Nothing of a clone is in the kernel's caches yet, and everything of the directory that it was made from is. What is there now as
 * the index has it was so when the clone was made, since it has not changed in between. All else is looked at in the clone.
 */
static bool live_is_as_indexed(struct walk *walk, const struct listing *live) {
  struct stat stat;
  const struct block *block = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
  if (live->error || !block || block->header->count != live->count) return false;
  if (fstat(live->fd, &stat) != 0 || stat.st_dev != walk->live_dev) return false;
  struct cursor old;
  cursor_start(&old, block->canonical, block->header->canonical_len);
  for (size_t i = 0; i < live->count; i++, cursor_next(&old)) {
    const struct item *item = &live->items[i];
    if (!old.valid || name_compare(old.entry.name, old.entry.record->name_len, item->name, item->name_len) != 0) return false;
    if (item->error || !item->type || (item->type == 'f' && item->nlink > 1)) return false;
    if (item->dev != walk->live_dev || !is_as_indexed(item, &old.entry, &block->stats[old.index])) return false;
  }
  return true;
}

/* The directory at the walk's path, below `top`; -1 when it is not there. */
static int open_here(struct walk *walk, int top) {
  if (!walk->path.len) return openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const char *name;
  const int dir = parent_below(top, (char *)walk->path.data, &name);
  if (dir < 0) return -1;
  const int fd = open_own(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  close(dir);
  return fd;
}

/*
 * The directory at the walk's path in the clone. The clone says which names there are and what they stand for; what that is comes from
 * `live` where it can: an inode that is as the index has it was so when the clone was made.
 */
static struct listing clone_listing(struct walk *walk, const struct listing *live) {
  struct listing listing;
  const char *name = ".";
  const int dir = walk->path.len ? parent_below(walk->tree, (char *)walk->path.data, &name) : dup(walk->tree);
  if (dir < 0) die_errno("open", (char *)walk->path.data);
  listing_read_names(dir, name, &listing);
  close(dir);
  const struct block *block = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
  struct cursor old = {0};
  if (block) cursor_start(&old, block->canonical, block->header->canonical_len);
  const struct item *other = live->items, *end = live->items + live->count;
  for (size_t i = 0; i < listing.count && !listing.error; i++) {
    struct item *item = &listing.items[i];
    while (other < end && name_compare(other->name, other->name_len, item->name, item->name_len) < 0) other++;
    while (old.valid && name_compare(old.entry.name, old.entry.record->name_len, item->name, item->name_len) < 0) cursor_next(&old);
    const bool same = other < end && name_compare(other->name, other->name_len, item->name, item->name_len) == 0 && old.valid &&
                      name_compare(old.entry.name, old.entry.record->name_len, item->name, item->name_len) == 0 && !other->error &&
                      other->ino == item->ino && other->dev == walk->live_dev && is_as_indexed(other, &old.entry, &block->stats[old.index]);
    if (same) {
      char *own_name = item->name;
      *item = *other;
      item->name = own_name;
      item->dev = walk->tree_dev;
    } else item_look(listing.fd, item);
  }
  return listing;
}

static bool changed_lately(struct walk *walk, uint64_t ino) { return map_get(&walk->since, ino, 0); }

static void item_from_index(struct item *item, const struct entry *entry, const struct stat_key *key, uint64_t dev) {
  const struct record *record = entry->record;
  item->ino = key->ino;
  item->dev = dev;
  item->type = record->type;
  item->size = record->size;
  item->nlink = 1;
  item->mtime_ns = record->mtime_ns;
  item->ctime_ns = key->ctime_ns;
  item->mode = record->mode;
  item->uid = record->uid;
  item->gid = record->gid;
  item->sure = true;
}

/* The names that the index has for a directory, which are those that it holds. */
static struct listing listing_from_index(struct walk *walk, const struct block *block) {
  struct listing listing = {.fd = open_here(walk, walk->tree), .count = block->header->count};
  if (listing.fd < 0) listing.error = errno;
  listing.items = calloc(listing.count + 1, sizeof *listing.items);
  if (!listing.items) die("limit_reached", "out of memory");
  buf_room(&listing.names, block->header->canonical_len + listing.count);
  listing.names.len = 0;
  struct cursor old;
  for (cursor_start(&old, block->canonical, block->header->canonical_len); old.valid; cursor_next(&old)) {
    struct item *item = &listing.items[old.index];
    item->name = (char *)listing.names.data + listing.names.len;
    item->name_len = old.entry.record->name_len;
    item->ino = block->stats[old.index].ino;
    buf_add(&listing.names, old.entry.name, item->name_len);
    buf_add(&listing.names, "", 1);
  }
  return listing;
}

static bool touched(struct walk *walk, const struct item *item) {
  const size_t before = path_push(walk, item->name, item->name_len);
  const bool found = map_get(walk->options->touched, bytes_key(walk->path.data, walk->path.len), walk->path.len);
  path_pop(walk, before);
  return found;
}

/*
 * The directory at the walk's path, where it is known what changed since the index was made: in a clone all that did, after a restore
 * what the restore did. `sure` says that the directory itself did not. An inode that did not and that the index has under this name is
 * taken as the index has it.
 */
static struct listing sifted_listing(struct walk *walk, bool sure) {
  const struct block *block = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
  struct listing listing = {.fd = -1};
  const bool listed = !sure || !block;
  if (!listed) listing = listing_from_index(walk, block);
  else {
    const int dir = open_here(walk, walk->tree);
    if (dir >= 0) listing_read_names(dir, ".", &listing), close(dir);
    else listing.error = errno;
  }
  struct cursor old = {0};
  if (block) cursor_start(&old, block->canonical, block->header->canonical_len);
  for (size_t i = 0; i < listing.count && !listing.error; i++) {
    struct item *item = &listing.items[i];
    while (old.valid && name_compare(old.entry.name, old.entry.record->name_len, item->name, item->name_len) < 0) cursor_next(&old);
    bool same = old.valid && name_compare(old.entry.name, old.entry.record->name_len, item->name, item->name_len) == 0 &&
                block->stats[old.index].ino == item->ino && !(walk->sifts ? changed_lately(walk, item->ino) : touched(walk, item));
    /* A list gives a subvolume the number that it has among those, which may be that of a directory that is gone. */
    if (same && listed && old.entry.record->type == 'd') {
      item_look(listing.fd, item);
      same = item->ino == block->stats[old.index].ino;
    } else if (!same) item_look(listing.fd, item);
    if (same) item_from_index(item, &old.entry, &block->stats[old.index], walk->tree_dev);
  }
  return listing;
}

/* Marks the directories of the index in which, or below which, something changed. */
static void mark_stale(struct walk *walk) {
  for (size_t i = 0; i < walk->index.count; i++) {
    struct block *block = &walk->index.blocks[i];
    bool stale = false;
    for (uint32_t entry = 0; entry < block->header->count && !stale; entry++) stale = changed_lately(walk, block->stats[entry].ino);
    for (size_t len = block->header->path_len; block && stale && !block->stale;) {
      block->stale = true;
      while (len > 0 && block->path[len - 1] != '/') len--;
      if (len > 0) len--;
      block = index_find(&walk->index, block->path, len);
    }
  }
}

/* Where the filesystem says what changed since the index was made, nothing else is looked at. */
static void begin_to_sift(struct walk *walk, const struct moment *now) {
  const struct moment *before = &walk->index.moment;
  if (!walk->have_index || !walk->options->locations_hold || walk->options->selection.count) return;
  if (!before->transaction || before->transaction >= now->transaction) return;
  if (memcmp(before->subvolume, now->subvolume, sizeof now->subvolume) != 0) return;
  const struct block *top = index_find(&walk->index, "", 0);
  /* Which of several hard links is the first is only known to a walk over all of them. */
  if (!top || top->header->flags & NODE_HAS_LINKS) return;
  size_t entries = 0;
  for (size_t i = 0; i < walk->index.count; i++) entries += walk->index.blocks[i].header->count;
  walk->sifts = changed_since(walk->tree, before, SIFTED_MAX + entries / WALK_IS_QUICKER, &walk->since);
  if (walk->sifts) mark_stale(walk);
}

/* Descends into the directories of `items`. Answers whether one of them is not what the index says. */
static bool scan_below(struct walk *walk, const struct listing *listing, size_t count, struct ignore_list *rules, bool filter,
                       const struct node *prefer, uint32_t *flags) {
  struct item *items = listing->items;
  bool changed = false;
  struct cursor wanted = {0};
  if (prefer->bytes) cursor_start(&wanted, prefer->canonical, prefer->canonical_len);
  size_t directories = 0, at = 0;
  for (size_t i = 0; i < count; i++) directories += items[i].type == 'd';
  struct ahead *ahead = must_alloc(directories * sizeof *ahead);
  /* Rules that are new may be about what has not changed. */
  const bool sifts = walk->sifts && !rules;
  const int live = walk->live < 0 || listing->live || !directories || sifts ? -1 : open_here(walk, walk->live);
  const int from = live >= 0 ? live : listing->fd;
  const bool from_live = live >= 0 || listing->live;
  for (size_t i = 0; i < count; i++)
    if (items[i].type == 'd') ahead[at++] = (struct ahead){.dir = from, .name = items[i].name};
  /* Most will be skipped where some can be: then each is read when it is its turn. */
  if (!walk->skips && !sifts) ahead_offer(ahead, directories);
  at = 0;
  for (size_t i = 0; i < count; i++) {
    struct item *item = &items[i];
    if (item->type == 'h') *flags |= NODE_HAS_LINKS;
    if (item->type != 'd') continue;
    struct ahead *next = &ahead[at++];
    while (wanted.valid && name_compare(wanted.entry.name, wanted.entry.record->name_len, item->name, item->name_len) < 0)
      cursor_next(&wanted);
    struct tree_ref child_prefer = {0};
    if (wanted.valid && wanted.entry.record->type == 'd' &&
        name_compare(wanted.entry.name, wanted.entry.record->name_len, item->name, item->name_len) == 0) {
      child_prefer.present = true;
      memcpy(child_prefer.root.hash, wanted.entry.record->hash, HASH_LEN);
      child_prefer.root.location = prefer->locations[wanted.index];
    }
    const size_t before = path_push(walk, item->name, item->name_len);
    struct root root;
    uint32_t child_flags;
    if (!(sifts ? skip_unchanged(walk, item, &root, &child_flags) : skip_untouched(walk, &child_prefer, &root, &child_flags))) {
      struct listing child = sifts || walk->skips ? sifted_listing(walk, sifts && item->sure) : ahead_listing(next);
      if (walk->result->stopped) {
        listing_free(&child);
        path_pop(walk, before);
        continue;
      }
      child.live = from_live && !item->changed && live_is_as_indexed(walk, &child);
      if (from_live && !child.live) {
        const struct listing cloned = clone_listing(walk, &child);
        listing_free(&child);
        child = cloned;
      }
      /* Gone before it was opened, or before it was listed. */
      if (child.error == ENOENT) {
        listing_free(&child);
        item->gone = changed = true;
        path_pop(walk, before);
        continue;
      }
      if (child.fd < 0 && (child.error == ENOTDIR || child.error == ELOOP))
        die("wrong_state", "%s became something else while the worktree was read", (char *)walk->path.data);
      const bool child_filter = filter && selected(&walk->options->selection, (char *)walk->path.data, walk->path.len) != INSIDE;
      scan_dir(walk, child, rules, child_filter, &child_prefer, &root, &child_flags);
    }
    *flags |= child_flags;
    path_pop(walk, before);
    const bool known = item->old && item->old->type == 'd' && walk->options->locations_hold &&
                       memcmp(root.hash, item->old->hash, HASH_LEN) == 0 &&
                       memcmp(&root.location, &item->location, sizeof root.location) == 0;
    if (!known) changed = true;
    memcpy(item->hash, root.hash, HASH_LEN);
    item->location = root.location;
  }
  if (live >= 0) close(live);
  free(ahead);
  return changed;
}

/* After a restore, the index names the places of the restored snapshot, and no others: theirs are sure to live on. */
static void prefer_locations(const struct node *prefer, const struct buf *canonical, struct location *locations) {
  struct cursor here, there = {0};
  if (prefer->bytes) cursor_start(&there, prefer->canonical, prefer->canonical_len);
  for (cursor_start(&here, canonical->data, canonical->len); here.valid; cursor_next(&here)) {
    if (here.entry.record->type != 'f') continue;
    while (there.valid && name_compare(there.entry.name, there.entry.record->name_len, here.entry.name, here.entry.record->name_len) < 0)
      cursor_next(&there);
    const bool same = there.valid && there.entry.record->type == 'f' &&
                      name_compare(there.entry.name, there.entry.record->name_len, here.entry.name, here.entry.record->name_len) == 0 &&
                      memcmp(there.entry.record->hash, here.entry.record->hash, HASH_LEN) == 0;
    locations[here.index] = same ? prefer->locations[there.index] : (struct location){0};
  }
}

/* An entry that is gone counts no more. The other names of a file that had several would lead nowhere without it. */
static void forget(struct walk *walk, const struct item *item) {
  if (item->type == 'd') return;
  walk->result->files--;
  if (item->type != 'f') return;
  walk->result->bytes -= item->size;
  if (map_get(&walk->links, item->ino, item->dev))
    die("wrong_state", "%s/%s, which has other names too, went away while the worktree was read", (char *)walk->path.data, item->name);
}

/* Whether the index has every directory below, each as the one above it says; with `keep`, they stay in it. */
static bool index_has_all(struct walk *walk, struct block *block, bool keep) {
  if (keep) block->kept = true;
  bool all = true;
  struct cursor cursor;
  for (cursor_start(&cursor, block->canonical, block->header->canonical_len); all && cursor.valid; cursor_next(&cursor)) {
    if (cursor.entry.record->type != 'd') continue;
    const size_t before = path_push(walk, cursor.entry.name, cursor.entry.record->name_len);
    struct block *child = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
    all = child && memcmp(child->header->hash, cursor.entry.record->hash, HASH_LEN) == 0 && index_has_all(walk, child, keep);
    path_pop(walk, before);
  }
  return all;
}

/*
 * A directory that the restore left alone and that the index knows as the restored snapshot has it need not be walked
 * again. Whatever somebody else has done to it meanwhile, the next scan finds by the times that the index holds.
 */
static bool skip_untouched(struct walk *walk, const struct tree_ref *prefer, struct root *out, uint32_t *flags) {
  if (!walk->skips || !prefer->present) return false;
  const char *path = (char *)walk->path.data;
  if (map_get(walk->options->touched, bytes_key(path, walk->path.len), walk->path.len)) return false;
  struct block *block = index_find(&walk->index, path, walk->path.len);
  if (!block || !block->header->location.pack || memcmp(block->header->hash, prefer->root.hash, HASH_LEN) != 0 ||
      memcmp(&block->header->location, &prefer->root.location, sizeof(struct location)) != 0)
    return false;
  if (!index_has_all(walk, block, false)) return false;
  index_has_all(walk, block, true);
  *out = prefer->root;
  *flags = block->header->flags;
  return true;
}

/* Counts what is below a directory of the index, and keeps it there. */
static void keep_below(struct walk *walk, struct block *block) {
  block->kept = true;
  walk->result->directories++;
  struct cursor cursor;
  for (cursor_start(&cursor, block->canonical, block->header->canonical_len); cursor.valid; cursor_next(&cursor)) {
    const struct record *record = cursor.entry.record;
    if (record->type != 'd') {
      walk->result->files++;
      if (record->type == 'f') walk->result->bytes += record->size;
      continue;
    }
    const size_t before = path_push(walk, cursor.entry.name, record->name_len);
    keep_below(walk, index_find(&walk->index, (char *)walk->path.data, walk->path.len));
    path_pop(walk, before);
  }
}

/* A directory of a clone in which nothing changed since the index was made. */
static bool skip_unchanged(struct walk *walk, const struct item *item, struct root *out, uint32_t *flags) {
  if (!item->sure) return false;
  struct block *block = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
  if (!block || block->stale || !block->header->location.pack || !index_has_all(walk, block, false)) return false;
  keep_below(walk, block);
  memcpy(out->hash, block->header->hash, HASH_LEN);
  out->location = block->header->location;
  *flags = block->header->flags;
  return true;
}

static bool scan_dir(struct walk *walk, struct listing listing, struct ignore_list *above, bool filter, const struct tree_ref *prefer_ref,
                     struct root *out, uint32_t *flags_out) {
  if (listing.error == EACCES && note_refused(walk, (char *)walk->path.data)) {
    listing.count = 0;
    listing.error = 0;
  }
  if (listing.error) {
    errno = listing.error;
    die_errno(listing.fd < 0 ? "open" : "list", (char *)walk->path.data);
  }
  walk->result->directories++;
  const int fd = listing.fd;
  struct item *items = listing.items;
  if (listing.has_ignore) walk->saw_ignore = true;
  struct ignore_list *rules = listing.has_ignore ? ignore_load(fd, (char *)walk->path.data, above) : above;
  struct block *block = walk->have_index ? index_find(&walk->index, (char *)walk->path.data, walk->path.len) : NULL;
  size_t count = examine(walk, &listing, rules, filter, block);
  progress_add(count, 0);
  if (walk->options->until_change) {
    bool differs = !block || block->header->count != count;
    for (size_t i = 0; i < count && !differs; i++) differs = items[i].differs;
    if (differs) {
      /* What is made of the rest is of no use to anybody. */
      walk->result->stopped = true;
      listing_stop(true);
      count = 0;
    }
  }
  struct node prefer = {0};
  if (prefer_ref->present) prefer = node_load(walk->store, prefer_ref->root.location, prefer_ref->root.hash, (char *)walk->path.data);

  take_contents(walk, fd, items, count);
  uint32_t flags = 0;
  bool changed = !block || block->header->count != count;
  for (size_t i = 0; i < count && !changed; i++) changed = items[i].changed;
  if (scan_below(walk, &listing, count, rules, filter, &prefer, &flags)) changed = true;

  const bool has_places = block && walk->options->locations_hold && block->header->location.pack;
  /* The same node at the same place names the same places for all that it holds. */
  const bool preferred =
      !walk->options->prefer || (has_places && prefer_ref->present && memcmp(prefer_ref->root.hash, block->header->hash, HASH_LEN) == 0 &&
                                 memcmp(&prefer_ref->root.location, &block->header->location, sizeof(struct location)) == 0);
  if (!changed && has_places && preferred) {
    block->kept = true;
    memcpy(out->hash, block->header->hash, HASH_LEN);
    out->location = block->header->location;
  } else {
    struct buf canonical = {0};
    struct location *locations = must_alloc(count * sizeof *locations);
    struct stat_key *keys = must_alloc(count * sizeof *keys);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
      const struct item *item = &items[i];
      const size_t at = canonical.len;
      if (item->gone || (item->changed && !add_record(walk, fd, item, &canonical))) {
        forget(walk, item);
        continue;
      }
      if (!item->changed) {
        const struct record *old = item->old;
        buf_add(&canonical, old, sizeof *old + old->name_len + old->link_len + old->xattr_len);
        if (item->type == 'd') memcpy(((struct record *)(canonical.data + at))->hash, item->hash, HASH_LEN);
      }
      locations[kept] = item->type == 'f' || item->type == 'd' ? item->location : (struct location){0};
      keys[kept++] = item->changed ? key_of(walk, item) : block->stats[item->old_at];
    }
    count = kept;
    blake3_hash(canonical.data, canonical.len, out->hash);
    if (walk->options->prefer) prefer_locations(&prefer, &canonical, locations);
    const bool same_places =
        has_places && block->header->count == count && memcmp(block->locations, locations, count * sizeof *locations) == 0;
    if (prefer.bytes && memcmp(out->hash, prefer_ref->root.hash, HASH_LEN) == 0) out->location = prefer_ref->root.location;
    else if (same_places && !walk->options->prefer && memcmp(out->hash, block->header->hash, HASH_LEN) == 0)
      out->location = block->header->location;
    else if (walk->options->prefer) out->location = (struct location){0}; /* no snapshot holds it: a later scan stores it */
    else out->location = node_store(walk->store, &canonical, locations, (uint32_t)count, flags);
    if (walk->options->new_index_path)
      index_add_block(&walk->fresh, (char *)walk->path.data, walk->path.len, out->hash, out->location, flags, canonical.data, canonical.len,
                      locations, keys, (uint32_t)count);
    walk->result->index_changed = true;
    changed = true;
    free(canonical.data);
    free(locations);
    free(keys);
  }
  *flags_out = flags;
  node_free(&prefer);
  if (rules != above) ignore_free(rules);
  listing_free(&listing);
  return changed;
}

/* The root is a node too, with the workspace directory as its only entry, so that its own metadata counts. */
static void finish_root(struct walk *walk, int fd, const struct root *top, uint32_t flags) {
  struct item item = {.name = ".", .name_len = 1, .type = 'd'};
  struct stat stat;
  if (fstat(fd, &stat) != 0) die_errno("stat", walk->options->directory);
  item_stat(&item, &stat);
  item.size = 0;
  memcpy(item.hash, top->hash, HASH_LEN);
  struct buf canonical = {0};
  add_record(walk, fd, &item, &canonical);
  struct root *root = &walk->result->root;
  blake3_hash(canonical.data, canonical.len, root->hash);
  const struct index_header *old = &walk->index.header;
  const struct block *top_was = walk->have_index ? index_find(&walk->index, "", 0) : NULL;
  if (walk->options->prefer && memcmp(root->hash, walk->options->prefer->hash, HASH_LEN) == 0) *root = *walk->options->prefer;
  else if (walk->have_index && walk->options->locations_hold && !walk->options->prefer && old->root.pack && top_was &&
           memcmp(&top_was->header->location, &top->location, sizeof top->location) == 0 &&
           memcmp(root->hash, old->root_hash, HASH_LEN) == 0)
    root->location = old->root;
  else {
    if (!walk->options->prefer) root->location = node_store(walk->store, &canonical, &top->location, 1, flags);
    walk->result->index_changed = true;
  }
  free(canonical.data);
}

void scan(struct store *store, const struct scan_options *options, struct scan_result *result) {
  memset(result, 0, sizeof *result);
  struct walk walk = {.store = store, .options = options, .result = result};
  walk.racy_from = (options->moment_ns ? options->moment_ns : filesystem_moment(store)) - RACY_NS;
  walk.have_index = options->index_path && index_open(&walk.index, options->index_path);
  buf_add(&walk.path, "", 1);
  walk.path.len = 0;
  const int fd = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) die_errno("open", options->directory);
  walk.tree = fd;
  walk.origin = options->live ? open(options->live, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  walk.live = walk.have_index ? walk.origin : -1;
  struct stat stat;
  if (fstat(fd, &stat) == 0) walk.tree_dev = stat.st_dev;
  if (walk.live >= 0 && fstat(walk.live, &stat) == 0) walk.live_dev = stat.st_dev;
  /* A scan of what is in use finds what changed by times; what has is still younger than the moment that the index had. */
  struct moment moment = walk.index.moment;
  if (options->whole_tree && moment_of_clone(fd, &moment)) begin_to_sift(&walk, &moment);
  struct tree_ref prefer = {0};
  if (options->prefer) {
    struct node top = node_load_top(store, options->prefer);
    prefer.present = true;
    memcpy(prefer.root.hash, ((const struct record *)top.canonical)->hash, HASH_LEN);
    prefer.root.location = top.locations[0];
    /* Which of several hard links is the first is only known to a walk over all of them. */
    walk.skips = options->touched && walk.have_index && options->locations_hold && !(top.flags & NODE_HAS_LINKS);
    node_free(&top);
  }
  struct root top;
  uint32_t flags;
  if (!skip_untouched(&walk, &prefer, &top, &flags)) {
    struct listing listing;
    if (walk.sifts || walk.skips) listing = sifted_listing(&walk, walk.sifts && !changed_lately(&walk, SUBVOLUME_ROOT_INO));
    else listing_read(walk.live >= 0 ? walk.live : fd, ".", &listing);
    if (walk.live >= 0 && !walk.sifts) {
      const struct listing cloned = clone_listing(&walk, &listing);
      listing_free(&listing);
      listing = cloned;
    }
    scan_dir(&walk, listing, NULL, options->selection.count > 0, &prefer, &top, &flags);
  }
  listing_stop(false);
  shut_again();
  if (!result->stopped) finish_root(&walk, fd, &top, flags);
  progress_clear();
  if (walk.origin >= 0) close(walk.origin);
  close(fd);
  for (size_t i = 0; i < walk.index.count && !result->index_changed; i++)
    if (!walk.index.blocks[i].kept) result->index_changed = true;
  /* Ignored files and sockets are not in the index, so that it cannot tell whether there still are none. What is of another subvolume
     is, with numbers that mean something else in this one. */
  if (walk.saw_ignore || walk.saw_other || result->sockets) memset(&moment, 0, sizeof moment);
  /* Compared with a moment that is long ago, more and more has changed since. */
  if (walk.since.used > SIFTED_MAX) result->index_changed = true;
  if (options->new_index_path && result->index_changed) {
    if (options->index_later)
      index_write_aside(options->new_index_path, &walk.index, &walk.fresh, result->root.hash, result->root.location, options->basis,
                        &moment);
    else index_write(options->new_index_path, &walk.index, &walk.fresh, result->root.hash, result->root.location, options->basis, &moment);
  }
  for (size_t i = 0; i < walk.links.cap; i++) free(walk.links.slots[i].value);
  free(walk.links.slots);
  free(walk.known.slots);
  free(walk.large_sizes.slots);
  free(walk.since.slots);
  free(walk.fresh.data);
  free(walk.path.data);
  index_close(&walk.index);
}
