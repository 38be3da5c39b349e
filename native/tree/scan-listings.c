#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"
#include "scan-walk.h"
#include "shut.h"

/*
 * The worktree is in the kernel's caches, its clone is not. An entry of the worktree that still is as the index has it has not changed since
 * the clone was made, so that it is the same in the clone. All other entries are read in the clone.
 */
bool live_is_as_indexed(struct walk *walk, const struct listing *live) {
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

int open_here(struct walk *walk, int top) {
  if (!walk->path.len) return openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const char *name;
  const int dir = parent_below(top, (char *)walk->path.data, &name);
  if (dir < 0) return -1;
  const int fd = open_own(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  close(dir);
  return fd;
}

/*
 * The directory at the walk's path in the clone. Names and inode numbers come from the clone. Metadata comes from `live` for inodes that
 * still are as the index has them, and else from the clone.
 */
struct listing clone_listing(struct walk *walk, const struct listing *live) {
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

bool changed_lately(struct walk *walk, uint64_t ino) { return map_get(&walk->since, ino, 0); }

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

/* A directory that has not changed, as the index has it. */
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
 * The directory at the walk's path, where it is known which inodes changed since the index was made: in a clone btrfs tells, after a restore
 * the restore does. `sure` says that the directory itself did not change. Inodes that did not change are taken from the index.
 */
struct listing sifted_listing(struct walk *walk, bool sure) {
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
    /* A directory listing shows a subvolume with its subvolume number, which can equal the inode of a directory that is gone. */
    if (same && listed && old.entry.record->type == 'd') {
      item_look(listing.fd, item);
      same = item->ino == block->stats[old.index].ino;
    } else if (!same) item_look(listing.fd, item);
    if (same) item_from_index(item, &old.entry, &block->stats[old.index], walk->tree_dev);
  }
  return listing;
}
