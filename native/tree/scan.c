#define _GNU_SOURCE
#include "scan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ignore.h"
#include "progress.h"
#include "scan-walk.h"
#include "shut.h"
#include "xattrs.h"

/* Kernel clocks tick at 100 Hz or more. Files that changed within two ticks before the walk are read again by the next one. */
#define RACY_NS 20000000
#define BTRFS_EMPTY_SUBVOLUME_INO 2
#define SUBVOLUME_ROOT_INO 256

int64_t filesystem_moment(struct store *store) {
  char name[64];
  const int fd = store_temporary(store, name, 0600);
  struct stat stat;
  if (fstat(fd, &stat) != 0) die_errno("stat", name);
  close(fd);
  unlinkat(store->dir, name, 0);
  return (int64_t)stat.st_mtim.tv_sec * 1000000000 + stat.st_mtim.tv_nsec;
}

int64_t racy_since(int64_t moment_ns) { return moment_ns - RACY_NS; }

size_t path_push(struct walk *walk, const char *name, size_t len) {
  const size_t before = walk->path.len;
  if (before) buf_add(&walk->path, "/", 1);
  buf_add(&walk->path, name, len);
  *buf_room(&walk->path, 1) = 0;
  walk->path.len--;
  return before;
}

void path_pop(struct walk *walk, size_t before) {
  walk->path.len = before;
  walk->path.data[before] = 0;
}

bool is_as_indexed(const struct item *item, const struct entry *old, const struct stat_key *key) {
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
    if (!item->no_xattrs) xattrs_read(fd, item->name, path, &xattrs);
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
  /* A new rule may ignore files that have not changed. */
  const bool sifts = walk->sifts && !rules;
  const int live = walk->live < 0 || listing->live || !directories || sifts ? -1 : open_here(walk, walk->live);
  const int from = live >= 0 ? live : listing->fd;
  const bool from_live = live >= 0 || listing->live;
  for (size_t i = 0; i < count; i++)
    if (items[i].type == 'd') ahead[at++] = (struct ahead){.dir = from, .name = items[i].name};
  /* When directories can be skipped, most are, so none is read ahead. */
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

/* After a restore, the index only names places of the restored snapshot, because these exist as long as the snapshot does. */
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

/* Takes an entry that is gone out of the counts. Dies when other hard links were recorded as links to it. */
static void forget(struct walk *walk, const struct item *item) {
  if (item->type == 'd') return;
  walk->result->files--;
  if (item->type != 'f') return;
  walk->result->bytes -= item->size;
  if (map_get(&walk->links, item->ino, item->dev))
    die("wrong_state", "%s/%s, which has other names too, went away while the worktree was read", (char *)walk->path.data, item->name);
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
      /* The caller only wants to know that something changed. */
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
  /* The same node at the same place: its entries have the same places too. */
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
      /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an unchanged item always comes from the block */
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
  walk.racy_from = racy_since(options->moment_ns ? options->moment_ns : filesystem_moment(store));
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
  /* A scan of the worktree itself keeps the moment of the old index: what it found by times also changed after that moment. */
  struct moment moment = walk.index.moment;
  if (options->whole_tree && moment_of_clone(fd, &moment)) begin_to_sift(&walk, &moment);
  struct tree_ref prefer = {0};
  if (options->prefer) {
    struct node top = node_load_top(store, options->prefer);
    prefer.present = true;
    memcpy(prefer.root.hash, ((const struct record *)top.canonical)->hash, HASH_LEN);
    prefer.root.location = top.locations[0];
    /* Only a walk over everything can tell which of several hard links is the first. */
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
  /* Ignored files and sockets are not in the index, so the next scan must look for them. Inode numbers of other subvolumes mean nothing
     in this one. In both cases the next scan must walk everything. */
  if (walk.saw_ignore || walk.saw_other || result->sockets) memset(&moment, 0, sizeof moment);
  /* Write a new index, with a newer moment, before too much has changed since the old one. */
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
