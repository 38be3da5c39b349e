#define _GNU_SOURCE
#include "fill.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "below.h"
#include "jobs.h"
#include "special.h"
#include "xattrs.h"

/* A directory of the stored tree. Those of one level are made at the same time, by several threads. */
struct folder {
  char *path;
  struct record record;
  uint8_t *xattrs;
  struct root root;
  struct folder *above; /* NULL: it is the top */
  uint32_t index;       /* among the entries of the one above */
  bool inside;          /* all of it is selected */
  struct node node;
  struct stat_key *keys; /* one for each entry of the node */
};

struct level {
  struct folder **folders;
  size_t count;
};

struct fill {
  struct store *store;
  const struct fill_options *options;
  struct refused *refused;
  int root, tree;
  bool has_links;
  pthread_mutex_t lock; /* of the next level */
  struct level *levels;
  size_t count;
};

static struct stat_key key_of(const struct stat *stat) {
  return (struct stat_key){stat->st_ino, (int64_t)stat->st_ctim.tv_sec * 1000000000 + stat->st_ctim.tv_nsec, 0, 0};
}

static char *path_in(const struct folder *folder, const struct entry *entry) {
  const size_t len = strlen(folder->path), name_len = entry->record->name_len;
  char *path = must_alloc(len + name_len + 2);
  memcpy(path, folder->path, len);
  if (len) path[len] = '/';
  memcpy(path + len + (len > 0), entry->name, name_len);
  path[len + (len > 0) + name_len] = 0;
  return path;
}

/* The directory itself, opened without following a symbolic link on the way. */
static int open_folder(const struct fill *fill, const struct folder *folder) {
  const char *name = ".";
  const int parent = *folder->path ? parent_below(fill->root, folder->path, &name) : dup(fill->root);
  const int fd = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) die_errno("open", folder->path);
  close(parent);
  return fd;
}

static void add_to_next_level(struct fill *fill, struct folder *folder) {
  pthread_mutex_lock(&fill->lock);
  struct level *next = &fill->levels[fill->count];
  if ((next->count & (next->count - 1)) == 0)
    next->folders = must_realloc(next->folders, (next->count ? 2 * next->count : 1) * sizeof *next->folders);
  next->folders[next->count++] = folder;
  pthread_mutex_unlock(&fill->lock);
}

static void make_folder(struct fill *fill, struct folder *above, const struct cursor *at, int dir, const char *name, char *path,
                        bool inside) {
  if (mkdirat(dir, name, 0700) != 0) die_errno("create", path);
  struct folder *folder = must_alloc(sizeof *folder);
  const struct record *record = at->entry.record;
  *folder = (struct folder){.path = path, .record = *record, .above = above, .index = at->index, .inside = inside};
  if (record->xattr_len) memcpy(folder->xattrs = must_alloc(record->xattr_len), at->entry.xattrs, record->xattr_len);
  memcpy(folder->root.hash, record->hash, HASH_LEN);
  folder->root.location = above->node.locations[at->index];
  add_to_next_level(fill, folder);
}

static struct stat_key make_file(struct fill *fill, const struct entry *entry, struct location at, int dir, const char *name,
                                 const char *path, struct near_below *near, struct content_memory *memory) {
  struct stat stat;
  const int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, entry->record->mode & 0777);
  if (fd < 0) die_errno("create", path);
  content_give(fill->store, near, fill->tree, entry->record, at, path, fd, memory);
  metadata_of_new(fd, dir, name, entry->record, entry->xattrs, path, fill->refused, &stat);
  close(fd);
  return key_of(&stat);
}

static struct stat_key make_special(struct fill *fill, const struct entry *entry, int dir, const char *name, const char *path) {
  struct stat stat;
  special_create(dir, name, entry, path);
  metadata_set(dir, name, entry->record, entry->xattrs, path, fill->refused);
  if (fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) != 0) die_errno("stat", path);
  return key_of(&stat);
}

/* Everything in one directory but hard links; the directories in it stay empty until the next level. */
static void fill_folder(void *context, size_t item, struct content_memory *memory) {
  struct fill *fill = context;
  struct folder *folder = fill->levels[fill->count - 1].folders[item];
  folder->node = node_load(fill->store, folder->root.location, folder->root.hash, folder->path);
  folder->keys = must_alloc(folder->node.count * sizeof *folder->keys);
  const int dir = open_folder(fill, folder);
  struct near_below near = {.dir = -1};
  struct cursor at;
  for (cursor_start(&at, folder->node.canonical, folder->node.canonical_len); at.valid; cursor_next(&at)) {
    const uint8_t type = at.entry.record->type;
    char *path = path_in(folder, &at.entry);
    const int part = folder->inside ? INSIDE : selected(&fill->options->selection, path, strlen(path));
    const char *name = path + strlen(path) - at.entry.record->name_len;
    const struct location where = folder->node.locations[at.index];
    if (part == OUTSIDE || (part == ON_THE_WAY && type != 'd')) {
      free(path);
      continue;
    }
    if (type == 'd') {
      make_folder(fill, folder, &at, dir, name, path, part == INSIDE);
      continue;
    }
    if (type == 'h') __atomic_store_n(&fill->has_links, true, __ATOMIC_RELAXED);
    else if (type == 'f') folder->keys[at.index] = make_file(fill, &at.entry, where, dir, name, path, &near, memory);
    else folder->keys[at.index] = make_special(fill, &at.entry, dir, name, path);
    free(path);
  }
  near_forget(&near);
  close(dir);
}

/* The other names of files. The first names are all there by now. */
static void make_links(struct fill *fill, const struct folder *folder) {
  const int dir = open_folder(fill, folder);
  struct cursor at;
  for (cursor_start(&at, folder->node.canonical, folder->node.canonical_len); at.valid; cursor_next(&at)) {
    if (at.entry.record->type != 'h') continue;
    char *path = path_in(folder, &at.entry);
    const char *name = path + strlen(path) - at.entry.record->name_len;
    if ((folder->inside || selected(&fill->options->selection, path, strlen(path)) == INSIDE) &&
        !special_link(fill->root, &at.entry, dir, name, path))
      die_errno("create", path);
    free(path);
  }
  close(dir);
}

/* Its own metadata, once nothing in it will change any more: the levels below have had theirs. */
static void finish_folder(void *context, size_t item, struct content_memory *memory) {
  (void)memory;
  struct fill *fill = context;
  struct folder *folder = fill->levels[fill->count - 1].folders[item];
  if (!folder->above && fill->options->selection.count) return;
  const int dir = open_folder(fill, folder);
  metadata_set(dir, ".", &folder->record, folder->xattrs, folder->path, fill->refused);
  struct stat stat;
  if (fstat(dir, &stat) != 0) die_errno("stat", folder->path);
  if (folder->above) folder->above->keys[folder->index] = key_of(&stat);
  close(dir);
}

static void write_index(struct fill *fill) {
  struct buf blocks = {0};
  const int64_t racy_from = racy_since(filesystem_moment(fill->store));
  for (size_t level = 0; level < fill->count; level++) {
    for (size_t i = 0; i < fill->levels[level].count; i++) {
      const struct folder *folder = fill->levels[level].folders[i];
      const struct node *node = &folder->node;
      for (uint32_t at = 0; at < node->count; at++)
        if (folder->keys[at].ctime_ns >= racy_from) folder->keys[at].flags = STAT_RACY;
      index_add_block(&blocks, folder->path, strlen(folder->path), folder->root.hash, folder->root.location, node->flags, node->canonical,
                      node->canonical_len, node->locations, folder->keys, node->count);
    }
  }
  const struct index none = {0};
  const struct moment never = {0};
  index_write(fill->options->index_path, &none, &blocks, fill->options->from.hash, fill->options->from.location, fill->options->basis,
              &never);
  free(blocks.data);
}

static struct folder *top_folder(struct fill *fill) {
  struct node top = node_load_top(fill->store, &fill->options->from);
  struct cursor at;
  cursor_start(&at, top.canonical, top.canonical_len);
  struct folder *folder = must_alloc(sizeof *folder);
  *folder = (struct folder){.path = must_strdup(""), .record = *at.entry.record, .inside = !fill->options->selection.count};
  if (folder->record.xattr_len) memcpy(folder->xattrs = must_alloc(folder->record.xattr_len), at.entry.xattrs, folder->record.xattr_len);
  memcpy(folder->root.hash, folder->record.hash, HASH_LEN);
  folder->root.location = top.locations[0];
  node_free(&top);
  return folder;
}

static void free_levels(struct fill *fill) {
  for (size_t level = 0; level < fill->count; level++) {
    for (size_t i = 0; i < fill->levels[level].count; i++) {
      struct folder *folder = fill->levels[level].folders[i];
      node_free(&folder->node);
      free(folder->keys);
      free(folder->xattrs);
      free(folder->path);
      free(folder);
    }
    free(fill->levels[level].folders);
  }
  free(fill->levels);
}

bool fill_directory(struct store *store, const struct fill_options *options, struct refused *refused) {
  struct fill fill = {.store = store, .options = options, .refused = refused, .tree = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
  memset(refused, 0, sizeof *refused);
  fill.root = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fill.root < 0) die_errno("open", options->directory);
  if (options->tree) {
    fill.tree = open(options->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fill.tree < 0 && errno == EACCES) die_errno("open", options->tree);
    if (fill.tree < 0) die("corrupt", "the stored tree %s is missing", options->tree);
  }
  /* An ACL that new files inherit is none of the snapshot's. */
  (void)xattrs_write(fill.root, ".", NULL, 0);
  const mode_t before = umask(0);
  fill.levels = must_alloc(sizeof *fill.levels);
  fill.levels[0] = (struct level){0};
  add_to_next_level(&fill, top_folder(&fill));
  while (fill.levels[fill.count].count) {
    fill.count++;
    fill.levels = must_realloc(fill.levels, (fill.count + 1) * sizeof *fill.levels);
    fill.levels[fill.count] = (struct level){0};
    jobs_run(fill_folder, &fill, fill.levels[fill.count - 1].count, true);
  }
  const size_t levels = fill.count;
  for (size_t level = 0; fill.has_links && level < levels; level++)
    for (size_t i = 0; i < fill.levels[level].count; i++) make_links(&fill, fill.levels[level].folders[i]);
  for (; fill.count; fill.count--) jobs_run(finish_folder, &fill, fill.levels[fill.count - 1].count, true);
  fill.count = levels;
  umask(before);
  const bool same = !refused->owners && !refused->attributes && !fill.has_links && !options->selection.count;
  if (same && options->index_path) write_index(&fill);
  free_levels(&fill);
  if (fill.tree >= 0) close(fill.tree);
  close(fill.root);
  return same;
}
