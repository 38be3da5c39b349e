#include <string.h>

#include "scan-walk.h"

#define WALK_IS_QUICKER 16

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

/* Asks btrfs what changed since the index was made. Where it answers, nothing else is read. */
void begin_to_sift(struct walk *walk, const struct moment *now) {
  const struct moment *before = &walk->index.moment;
  if (!walk->have_index || !walk->options->locations_hold || walk->options->selection.count) return;
  if (!before->transaction || before->transaction >= now->transaction) return;
  if (memcmp(before->subvolume, now->subvolume, sizeof now->subvolume) != 0) return;
  const struct block *top = index_find(&walk->index, "", 0);
  /* Only a walk over everything can tell which of several hard links is the first. */
  if (!top || top->header->flags & NODE_HAS_LINKS) return;
  size_t entries = 0;
  for (size_t i = 0; i < walk->index.count; i++) entries += walk->index.blocks[i].header->count;
  walk->sifts = changed_since(walk->tree, before, SIFTED_MAX + entries / WALK_IS_QUICKER, &walk->since);
  if (walk->sifts) mark_stale(walk);
}

/* Whether the index has this directory and all below it, with the hashes that their parents name. With `keep`, they stay in the index. */
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
 * A directory that the restore did not touch, and that the index has as it is in the restored snapshot, is not walked again. If somebody else
 * has changed it meanwhile, the next scan finds that by the times in the index.
 */
bool skip_untouched(struct walk *walk, const struct tree_ref *prefer, struct root *out, uint32_t *flags) {
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
bool skip_unchanged(struct walk *walk, const struct item *item, struct root *out, uint32_t *flags) {
  if (!item->sure) return false;
  struct block *block = index_find(&walk->index, (char *)walk->path.data, walk->path.len);
  if (!block || block->stale || !block->header->location.pack || !index_has_all(walk, block, false)) return false;
  keep_below(walk, block);
  memcpy(out->hash, block->header->hash, HASH_LEN);
  out->location = block->header->location;
  *flags = block->header->flags;
  return true;
}
