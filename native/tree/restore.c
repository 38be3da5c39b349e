#define _GNU_SOURCE
#include "restore.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"
#include "restore-work.h"
#include "retire.h"
#include "stuck.h"
#include "xattrs.h"

/*
 * Two passes over the same differences. The first writes every new file to the staging directory and compares it with its hash. The
 * second moves the files into place. So a damaged store or a full disk is found before the worktree is touched.
 */
struct pair {
  struct node from, to;
};

size_t work_push(struct work *work, const char *name, size_t len) {
  const size_t before = work->path.len;
  if (before) buf_add(&work->path, "/", 1);
  buf_add(&work->path, name, len);
  *buf_room(&work->path, 1) = 0;
  work->path.len--;
  return before;
}

void work_pop(struct work *work, size_t before) {
  work->path.len = before;
  work->path.data[before] = 0;
}

const char *here(const struct work *work) { return (const char *)work->path.data; }

void mark_touched(struct work *work) {
  for (size_t len = work->path.len;;) {
    void **mark = map_at(&work->result->touched, bytes_key(here(work), len), len);
    if (*mark) return;
    *mark = work;
    if (!len) return;
    while (len > 0 && work->path.data[len - 1] != '/') len--;
    if (len > 0) len--;
  }
}

void set_metadata(struct work *work, int dir, const char *name, const struct record *record, const uint8_t *xattrs) {
  mark_touched(work);
  metadata_set(dir, name, record, xattrs, here(work), &work->result->refused);
}

/* A directory inside another one, for the pass that only looks. Where it cannot be opened, nothing in it is checked. */
static struct spot spot_in(const struct spot *spot, const char *name) {
  const int fd = spot->fd < 0 ? -1 : openat(spot->fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return (struct spot){.fd = fd, .inherits = -1};
}

static void spot_close(const struct spot *spot) {
  if (spot->fd >= 0) close(spot->fd);
}

static void refuse_if_stuck(struct work *work, struct spot *spot, const char *name) {
  if (spot->fd < 0) return; /* This restore makes the directory too. */
  if (!spot->can_change) refuse_stuck_directory(spot->fd, here(work));
  spot->can_change = true;
  refuse_stuck_entry(spot->fd, name, here(work));
}

static void name_of(const struct entry *entry, char name[256]) {
  memcpy(name, entry->name, entry->record->name_len);
  name[entry->record->name_len] = 0;
}

/* Before anything is removed: can all of it be? */
static void check_removal(struct work *work, struct spot *spot, const struct entry *entry, struct location at) {
  char name[256];
  name_of(entry, name);
  refuse_if_stuck(work, spot, name);
  if (entry->record->type != 'd') return;
  struct node node = node_load(work->store, at, entry->record->hash, here(work));
  struct spot inside = spot_in(spot, name);
  struct cursor cursor;
  for (cursor_start(&cursor, node.canonical, node.canonical_len); cursor.valid; cursor_next(&cursor)) {
    const size_t before = work_push(work, cursor.entry.name, cursor.entry.record->name_len);
    check_removal(work, &inside, &cursor.entry, node.locations[cursor.index]);
    work_pop(work, before);
  }
  spot_close(&inside);
  node_free(&node);
}

static bool same_but_hash(const struct entry *a, const struct entry *b) {
  struct record x = *a->record, y = *b->record;
  memset(x.hash, 0, HASH_LEN);
  memset(y.hash, 0, HASH_LEN);
  return a->size == b->size && memcmp(&x, &y, sizeof x) == 0 && memcmp(a->name, b->name, a->size - sizeof x) == 0;
}

static bool descend(struct work *work, struct spot *spot, struct pair *pair, bool filter);

/* One name, and what both sides, or one of them, have there. */
struct change {
  const char *name;
  const struct entry *old, *new;
  struct location old_at, new_at;
  int part; /* of the selection */
};

/* Changes the metadata of an entry that stays, or checks that it can. */
static void adjust(struct work *work, struct spot *spot, const struct change *change) {
  if (!work->applying) {
    refuse_if_stuck(work, spot, change->name);
    return;
  }
  set_metadata(work, spot->fd, change->name, change->new->record, change->new->xattrs);
  work->result->adjusted++;
}

static void make_directory(struct work *work, int dir, const char *name) {
  struct stat found;
  work->result->written++;
  if (mkdirat(dir, name, 0700) == 0) return;
  if (errno != EEXIST || fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) != 0) die_errno("create", here(work));
  if (S_ISDIR(found.st_mode)) return;
  move_aside(work, dir, name);
  if (mkdirat(dir, name, 0700) != 0) die_errno("create", here(work));
}

static bool has_links(struct work *work, const struct change *change) {
  struct node node = node_load(work->store, change->new_at, change->new->record->hash, here(work));
  const bool has = node.flags & NODE_HAS_LINKS;
  node_free(&node);
  return has;
}

/* The snapshot has a directory here. Answers whether the directory that holds it was changed by that. */
static bool settle_directory(struct work *work, struct spot *spot, const struct change *change, bool may_relink, bool filter) {
  const struct entry *old = change->old, *new = change->new;
  const bool was_dir = old && old->record->type == 'd';
  const bool metadata = change->part == INSIDE && (!was_dir || !same_but_hash(old, new));
  if (was_dir && memcmp(old->record->hash, new->record->hash, HASH_LEN) == 0 && !(may_relink && has_links(work, change))) {
    if (metadata) adjust(work, spot, change);
    return false;
  }
  struct spot inside = {.fd = -1, .inherits = -1};
  int mode = -1;
  if (work->applying) {
    if (old && !was_dir) remove_entry(work, spot->fd, old, change->old_at);
    if (was_dir) mode = open_up(spot->fd, change->name);
    else make_directory(work, spot->fd, change->name);
    inside.fd = openat(spot->fd, change->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inside.fd < 0) die_errno("open", here(work));
  } else {
    if (old && !was_dir) check_removal(work, spot, old, change->old_at);
    else if (metadata) refuse_if_stuck(work, spot, change->name);
    if (was_dir) inside = spot_in(spot, change->name);
  }
  struct pair pair = {0};
  if (was_dir) pair.from = node_load(work->store, change->old_at, old->record->hash, here(work));
  pair.to = node_load(work->store, change->new_at, new->record->hash, here(work));
  const bool touched = descend(work, &inside, &pair, filter && change->part != INSIDE);
  node_free(&pair.from);
  node_free(&pair.to);
  spot_close(&inside);
  if (work->applying && (metadata || !was_dir || (touched && change->part == INSIDE))) {
    set_metadata(work, spot->fd, change->name, new->record, new->xattrs);
    if (was_dir) work->result->adjusted++;
  } else close_again(work, spot->fd, change->name, mode);
  return !was_dir;
}

static void replace(struct work *work, struct spot *spot, const struct change *change) {
  struct stat found;
  const struct entry *old = change->old, *new = change->new;
  const bool both_files = old && old->record->type == 'f' && new->record->type == 'f';
  mark_touched(work);
  if (both_files) {
    place_file(work, spot, change->name, new, old);
  } else {
    if (old && old->record->type == 'd') remove_entry(work, spot->fd, old, change->old_at);
    else if (old ? changed_meanwhile(work, spot->fd, change->name, old) : fstatat(spot->fd, change->name, &found, AT_SYMLINK_NOFOLLOW) == 0)
      move_aside(work, spot->fd, change->name);
    if (new->record->type == 'f') place_file(work, spot, change->name, new, NULL);
    else {
      /* It may be a hard link to one of these files. */
      place_clones(work, spot);
      place_special(work, spot->fd, change->name, new);
    }
  }
  work->result->written++;
  if (work->result->written > 1) return;
  place_clones(work, spot);
  kill_point("restore-first");
}

/* Answers whether the directory that holds this name was changed. */
static bool settle(struct work *work, struct spot *spot, const struct change *change, bool may_relink, bool filter) {
  const struct entry *old = change->old, *new = change->new;
  if (change->part == OUTSIDE) return false;
  if (!new || (change->part == ON_THE_WAY && new->record->type != 'd')) {
    if (change->part == ON_THE_WAY) return false;
    if (work->applying) mark_touched(work), remove_entry(work, spot->fd, old, change->old_at);
    else check_removal(work, spot, old, change->old_at);
    return true;
  }
  const uint8_t type = new->record->type;
  if (type == 'd') return settle_directory(work, spot, change, may_relink, filter);
  if (old && old->size == new->size && memcmp(old->record, new->record, new->size) == 0) {
    if (type != 'h' || !map_get(&work->replaced, bytes_key(new->link, new->record->link_len), 1)) return false;
  } else if (old && old->record->type == 'f' && type == 'f' && memcmp(old->record->hash, new->record->hash, HASH_LEN) == 0 &&
             old->record->size == new->record->size) {
    adjust(work, spot, change);
    return false;
  }
  if (type == 'f') *map_at(&work->replaced, bytes_key(here(work), work->path.len), 1) = work;
  if (work->applying) replace(work, spot, change);
  else {
    if (old) check_removal(work, spot, old, change->old_at);
    else refuse_if_stuck(work, spot, change->name);
    if (type == 'f') stage_later(work, new, change->new_at);
  }
  return true;
}

/* Files first, directories after: the first of several hard links comes before the others, as it does in a scan. */
static bool descend_kind(struct work *work, struct spot *spot, struct pair *pair, bool filter, bool directories) {
  struct cursor from = {0}, to = {0};
  bool touched = false;
  if (pair->from.bytes) cursor_start(&from, pair->from.canonical, pair->from.canonical_len);
  if (pair->to.bytes) cursor_start(&to, pair->to.canonical, pair->to.canonical_len);
  while (from.valid || to.valid) {
    const int order = !from.valid ? 1
                      : !to.valid ? -1
                                  : name_compare(from.entry.name, from.entry.record->name_len, to.entry.name, to.entry.record->name_len);
    const struct entry *any = order <= 0 ? &from.entry : &to.entry;
    const bool is_directory = order >= 0 && to.entry.record->type == 'd';
    if (is_directory == directories) {
      const size_t before = work_push(work, any->name, any->record->name_len);
      char name[256];
      name_of(any, name);
      struct change change = {.name = name, .part = filter ? selected(&work->options->selection, here(work), work->path.len) : INSIDE};
      if (order <= 0) change.old = &from.entry, change.old_at = pair->from.locations[from.index];
      if (order >= 0) change.new = &to.entry, change.new_at = pair->to.locations[to.index];
      const bool may_relink = (pair->to.flags & NODE_HAS_LINKS) && work->replaced.used;
      if (settle(work, spot, &change, may_relink, filter)) touched = true;
      work_pop(work, before);
    }
    if (order <= 0) cursor_next(&from);
    if (order >= 0) cursor_next(&to);
  }
  place_clones(work, spot);
  return touched;
}

static bool descend(struct work *work, struct spot *spot, struct pair *pair, bool filter) {
  const bool files = descend_kind(work, spot, pair, filter, false);
  return descend_kind(work, spot, pair, filter, true) || files;
}

static void pass(struct work *work, const struct node *from_top, const struct node *to_top) {
  struct cursor from, to;
  cursor_start(&from, from_top->canonical, from_top->canonical_len);
  cursor_start(&to, to_top->canonical, to_top->canonical_len);
  struct pair pair = {.from = node_load(work->store, from_top->locations[0], from.entry.record->hash, ""),
                      .to = node_load(work->store, to_top->locations[0], to.entry.record->hash, "")};
  struct spot top = {.fd = work->root, .inherits = -1};
  const int mode = work->applying ? open_up(work->root, ".") : -1;
  const bool touched = descend(work, &top, &pair, work->options->selection.count > 0);
  if (work->applying && !work->options->selection.count && (touched || !same_but_hash(&from.entry, &to.entry)))
    set_metadata(work, work->root, ".", to.entry.record, to.entry.xattrs);
  else close_again(work, work->root, ".", mode);
  node_free(&pair.from);
  node_free(&pair.to);
}

static void open_places(struct work *work) {
  const struct restore_options *options = work->options;
  struct stat there, here_too;
  work->root = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work->root < 0) die_errno("open", options->directory);
  work->staging = open(options->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work->staging < 0) die_errno("open", options->staging);
  /* An ACL that new files inherit is none of the snapshot's. */
  (void)xattrs_write(work->staging, ".", NULL, 0);
  stuck_below(work->root);
  if (fstat(work->root, &there) != 0 || fstat(work->staging, &here_too) != 0) die_errno("stat", options->directory);
  work->across = there.st_dev != here_too.st_dev;
  if (!options->tree) return;
  work->tree = open(options->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work->tree < 0 && errno == EACCES) die_errno("open", options->tree);
  if (work->tree < 0) die("corrupt", "the stored tree %s is missing", options->tree);
  work->clones = work->across || options->staged_inside;
}

static void apply(struct store *store, const struct restore_options *options, struct restore_result *result) {
  memset(result, 0, sizeof *result);
  struct work work = {.store = store, .options = options, .result = result, .tree = -1, .group = -1, .near = {.dir = -1}};
  buf_add(&work.path, "", 1);
  work.path.len = 0;
  open_places(&work);
  /* Files are made with the permissions that they are to have. */
  const mode_t before = umask(0);
  struct node from = node_load_top(store, &options->from), to = node_load_top(store, &options->to);
  pass(&work, &from, &to);
  stage_all(&work);
  kill_point("restore-staged");
  if (work.replaced.cap) memset(work.replaced.slots, 0, work.replaced.cap * sizeof *work.replaced.slots);
  work.replaced.used = 0;
  work.applying = workspace_touched = true;
  pass(&work, &from, &to);
  umask(before);
  kill_point("restore-applied");
  near_forget(&work.near);
  node_free(&from);
  node_free(&to);
  stage_forget(&work);
  free(work.replaced.slots);
  free(work.linked.slots);
  free(work.placing);
  free(work.path.data);
  if (work.tree >= 0) close(work.tree);
  close(work.staging);
  close(work.root);
  if (!options->staged_inside) return;
  retire_settle();
  remove_unseen(options->staging);
}

static void *sync_directory(void *path) {
  sync_filesystem(path);
  return NULL;
}

void restore(struct store *store, const struct restore_options *options, const struct scan_options *again, struct restore_result *result,
             struct scan_result *found) {
  apply(store, options, result);
  struct scan_options after = *again;
  after.directory = options->directory;
  after.written = &result->files;
  after.touched = &result->touched;
  after.no_xattrs_refused = !result->refused.attributes;
  /* A restore of some paths leaves a tree that no snapshot holds; then there are no places to prefer. */
  if (!options->selection.count) after.prefer = &options->to;
  /* The disk is waited for meanwhile. The index that the scan writes need not be there after a power cut: it has a checksum. */
  pthread_t syncing = 0;
  if (options->durable && pthread_create(&syncing, NULL, sync_directory, (void *)options->directory) != 0)
    die("limit_reached", "no more threads");
  scan(store, &after, found);
  if (options->durable) pthread_join(syncing, NULL);
  for (size_t i = 0; i < result->files.cap; i++) free(result->files.slots[i].value);
  free(result->files.slots);
  free(result->touched.slots);
}
