#define _GNU_SOURCE
#include "restore.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"
#include "jobs.h"
#include "listing.h"
#include "shut.h"
#include "stuck.h"
#include "xattrs.h"

/*
 * Two passes over the same differences. The first writes every new file to the staging directory and checks it against
 * its hash: when something stored is damaged, or the disk is full, the workspace has not been touched yet. The second
 * moves the files into place.
 */
struct staged {
  struct record record; /* without what follows it */
  struct location location;
  char *path;
  const uint8_t *xattrs;
};

struct work {
  struct store *store;
  const struct restore_options *options;
  struct restore_result *result;
  bool applying;
  bool across; /* nothing can be renamed from the staging directory: another subvolume, or a mount inside */
  int staging, tree, root;
  struct staged *staged;
  size_t staged_count, staged_cap, next_staged;
  struct map replaced; /* paths of files that are new inodes: hard links to them are made anew */
  struct map linked;   /* files with several names of which the first had its turn */
  struct buf path;
};

struct pair {
  struct node from, to;
};

static size_t push(struct work *work, const char *name, size_t len) {
  const size_t before = work->path.len;
  if (before) buf_add(&work->path, "/", 1);
  buf_add(&work->path, name, len);
  *buf_room(&work->path, 1) = 0;
  work->path.len--;
  return before;
}

static void pop(struct work *work, size_t before) {
  work->path.len = before;
  work->path.data[before] = 0;
}

static const char *here(const struct work *work) { return (const char *)work->path.data; }

/* What is here, the directory that holds it, and those above that, are no longer as they were scanned. */
static void mark_touched(struct work *work) {
  for (size_t len = work->path.len;;) {
    void **mark = map_at(&work->result->touched, bytes_key(here(work), len), len);
    if (*mark) return;
    *mark = work;
    if (!len) return;
    while (len > 0 && work->path.data[len - 1] != '/') len--;
    if (len > 0) len--;
  }
}

/* `staged_for` is the path for which a file has just been made in the staging directory, NULL for what is in place. */
static void set_metadata(struct work *work, int dir, const char *name, const struct record *record, const uint8_t *xattrs,
                         const char *staged_for) {
  const bool fresh = staged_for != NULL;
  const char *path = fresh ? staged_for : here(work);
  struct stat now;
  if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) != 0) die_errno("stat", path);
  if (!fresh) mark_touched(work);
  if ((now.st_uid != record->uid || now.st_gid != record->gid) && fchownat(dir, name, record->uid, record->gid, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != EPERM && errno != EINVAL) die_errno("change the owner of", path);
    __atomic_add_fetch(&work->result->owners_refused, 1, __ATOMIC_RELAXED);
  }
  if (!fresh || record->xattr_len) {
    const unsigned refused = xattrs_write(dir, name, xattrs, record->xattr_len);
    if (refused) __atomic_add_fetch(&work->result->attributes_refused, refused, __ATOMIC_RELAXED);
  }
  /* After the owner, since changing that clears set-user-id bits, and after an ACL, which sets the group's bits. In a
     worktree somebody may be at work: what has become a symbolic link meanwhile must not lead us out of it. */
  if (record->type != 'l' && fchmodat(dir, name, record->mode, fresh ? 0 : AT_SYMLINK_NOFOLLOW) != 0) die_errno("change the mode of", path);
  const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {.tv_sec = record->mtime_ns / 1000000000 - (record->mtime_ns % 1000000000 < 0),
                                     .tv_nsec = (record->mtime_ns % 1000000000 + 1000000000) % 1000000000}};
  if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) != 0) die_errno("set the time of", path);
}

static void stage_later(struct work *work, const struct entry *entry, struct location at) {
  if (work->staged_count == work->staged_cap) {
    work->staged_cap = work->staged_cap ? work->staged_cap * 2 : 64;
    work->staged = must_realloc(work->staged, work->staged_cap * sizeof *work->staged);
  }
  struct staged *staged = &work->staged[work->staged_count++];
  staged->record = *entry->record;
  staged->location = at;
  staged->path = must_strdup(here(work));
  uint8_t *xattrs = entry->record->xattr_len ? must_alloc(entry->record->xattr_len) : NULL;
  if (xattrs) memcpy(xattrs, entry->xattrs, entry->record->xattr_len);
  staged->xattrs = xattrs;
}

static void stage_one(void *context, size_t at, struct content_memory *memory) {
  struct work *work = context;
  const struct staged *staged = &work->staged[at];
  char name[32];
  snprintf(name, sizeof name, "%zu", at);
  const int fd = openat(work->staging, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) die_errno("create a file in", work->options->staging);
  content_give(work->store, work->tree, &staged->record, staged->location, staged->path, fd, memory);
  close(fd);
  set_metadata(work, work->staging, name, &staged->record, staged->xattrs, staged->path);
}

/* What no snapshot holds is not ours to delete: ignored files, and changes of the last moment. It goes to a place outside the workspace. */
static void move_aside(struct work *work, int dir, const char *name) {
  if (mkdir(work->options->kept, 0700) != 0 && errno != EEXIST) die_errno("create", work->options->kept);
  const int kept = open(work->options->kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (kept < 0) die_errno("open", work->options->kept);
  char to[32];
  snprintf(to, sizeof to, "%llu", (unsigned long long)work->result->moved_aside++);
  if (renameat(dir, name, kept, to) != 0) {
    if (errno != EXDEV) die_errno("move aside", here(work));
    /* With the name of this restore: what an earlier one kept may still be there, and be ignored too. */
    char beside[300];
    const bool cut = strlen(name) > 200; /* as another one may be */
    snprintf(beside, sizeof beside, "%.*s%s%s.kept-by-restore-%.32s", cut ? 180 : 200, name, cut ? "~" : "", cut ? to : "",
             strrchr(work->options->kept, '/') + 1);
    if (renameat(dir, name, dir, beside) != 0) die_errno("move aside", here(work));
    (void)rmdir(work->options->kept);
  }
  close(kept);
}

/* Whether another name of a file still is one. When it was the first one's turn, the file was looked at. */
static bool is_still_linked(struct work *work, const struct item *now, const struct entry *seen) {
  if (now->type != 'f') return false;
  if (map_get(&work->linked, now->ino, now->dev)) return true;
  char path[65536];
  memcpy(path, seen->link, seen->record->link_len);
  path[seen->record->link_len] = 0;
  const char *name;
  const int dir = parent_below(work->root, path, &name);
  if (dir < 0) return false;
  struct item first = {.name = (char *)name};
  item_look(dir, &first);
  close(dir);
  return !first.error && first.ino == now->ino && first.dev == now->dev;
}

/* Whether a file, or a link, is not what the scan saw: what somebody has written to it since is nowhere else. */
static bool changed_meanwhile(struct work *work, int dir, const char *name, const struct entry *seen) {
  const struct record *record = seen->record;
  struct item now = {.name = (char *)name};
  item_look(dir, &now);
  if (now.error == ENOENT) return false;
  if (now.error) {
    errno = now.error;
    die_errno("stat", here(work));
  }
  if (record->type == 'h') return !is_still_linked(work, &now, seen);
  if (now.type != record->type) return true;
  if (now.type == 'f' && now.nlink > 1) *map_at(&work->linked, now.ino, now.dev) = work;
  if (record->type == 'f')
    return now.size != record->size || now.mtime_ns != record->mtime_ns || now.mode != record->mode || now.uid != record->uid ||
           now.gid != record->gid;
  char target[4097];
  return record->type == 'l' &&
         (readlinkat(dir, name, target, sizeof target) != (ssize_t)record->link_len || memcmp(target, seen->link, record->link_len) != 0);
}

/* Lets us into a directory of ours. Answers the mode that it had where that had to change, else -1. */
static int open_up(int dir, const char *name) {
  struct stat now;
  if (geteuid() == 0 || fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(now.st_mode) || (now.st_mode & 0700) == 0700)
    return -1;
  const mode_t mode = now.st_mode & 07777;
  return fchmodat(dir, name, mode | 0700, AT_SYMLINK_NOFOLLOW) == 0 ? (int)mode : -1;
}

/* Where nothing else has given it the mode that it shall have. */
static void close_again(struct work *work, int dir, const char *name, int mode) {
  if (mode >= 0 && fchmodat(dir, name, (mode_t)mode, AT_SYMLINK_NOFOLLOW) != 0) die_errno("change the mode of", here(work));
}

/* Removes what the scan saw below a directory, and the directory when nothing else is left in it. */
static void remove_entry(struct work *work, int dir, const struct entry *entry, struct location at) {
  char name[256];
  memcpy(name, entry->name, entry->record->name_len);
  name[entry->record->name_len] = 0;
  if (entry->record->type != 'd') {
    if (changed_meanwhile(work, dir, name, entry)) move_aside(work, dir, name);
    else if (unlinkat(dir, name, 0) != 0 && errno != ENOENT) die_errno("remove", here(work));
    work->result->removed++;
    return;
  }
  struct node node = node_load(work->store, at, entry->record->hash, here(work));
  open_up(dir, name);
  const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) {
    struct cursor cursor;
    for (cursor_start(&cursor, node.canonical, node.canonical_len); cursor.valid; cursor_next(&cursor)) {
      const size_t before = push(work, cursor.entry.name, cursor.entry.record->name_len);
      remove_entry(work, fd, &cursor.entry, node.locations[cursor.index]);
      pop(work, before);
    }
    close(fd);
  } else if (errno == ENOTDIR || errno == ELOOP) move_aside(work, dir, name); /* it is no directory any more */
  else if (errno != ENOENT) die_errno("open", here(work));
  node_free(&node);
  if (unlinkat(dir, name, AT_REMOVEDIR) == 0) work->result->removed++;
  else if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT) die_errno("remove", here(work));
}

/* Before anything is removed: can all of it be? */
static void check_removal(struct work *work, const struct entry *entry, struct location at) {
  refuse_stuck(work->root, here(work));
  if (entry->record->type != 'd') return;
  struct node node = node_load(work->store, at, entry->record->hash, here(work));
  struct cursor cursor;
  for (cursor_start(&cursor, node.canonical, node.canonical_len); cursor.valid; cursor_next(&cursor)) {
    const size_t before = push(work, cursor.entry.name, cursor.entry.record->name_len);
    check_removal(work, &cursor.entry, node.locations[cursor.index]);
    pop(work, before);
  }
  node_free(&node);
}

/* Whatever has this name goes; a directory is still there only when it holds ignored files. */
static void clear_name(struct work *work, int dir, const char *name) {
  if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR && errno != EPERM) die_errno("replace", here(work));
  move_aside(work, dir, name);
}

/* False when the worktree is another subvolume or mount, into which nothing can be renamed. */
static bool rename_into(struct work *work, const char *staged, int dir, const char *name) {
  if (renameat(work->staging, staged, dir, name) != 0) {
    if (errno == EXDEV) return false;
    if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST) die_errno("write", here(work));
    move_aside(work, dir, name);
    if (renameat(work->staging, staged, dir, name) != 0) die_errno("write", here(work));
  }
  return true;
}

/* False when the new name would be on another filesystem than the file. */
static bool create_link(struct work *work, const char *to, int dir, const char *name) {
  const char *last;
  const int parent = parent_below(work->root, to, &last);
  if (parent < 0) die_errno("find", to);
  const int failed = linkat(parent, last, dir, name, 0);
  const int error = errno;
  close(parent);
  errno = error;
  if (failed && errno != EXDEV) die_errno("create", here(work));
  return !failed;
}

/* False when it is a hard link and cannot be made there. */
static bool create_special(struct work *work, int dir, const char *name, const struct entry *entry) {
  const struct record *record = entry->record;
  char link[65536];
  memcpy(link, entry->link, record->link_len);
  link[record->link_len] = 0;
  int failed = 0;
  if (record->type == 'l') failed = symlinkat(link, dir, name);
  else if (record->type == 'h') return create_link(work, link, dir, name);
  else if (record->type == 'p') failed = mkfifoat(dir, name, 0600);
  else failed = mknodat(dir, name, (record->type == 'c' ? S_IFCHR : S_IFBLK) | 0600, record->size);
  if (failed) die_errno("create", here(work));
  set_metadata(work, dir, name, record, entry->xattrs, NULL);
  return true;
}

static void create_in_place(struct work *work, int dir, const char *name, const struct entry *entry) {
  clear_name(work, dir, name);
  if (!create_special(work, dir, name, entry)) die_errno("create", here(work));
}

static void place_special(struct work *work, int dir, const char *name, const struct entry *entry) {
  bool placed = !work->across && create_special(work, work->staging, "special", entry);
  if (placed) {
    placed = rename_into(work, "special", dir, name);
    /* Renaming one hard link over another of the same file does nothing at all, so it may still be here. */
    unlinkat(work->staging, "special", 0);
  }
  if (!placed) create_in_place(work, dir, name, entry);
}

static void copy_bytes(int from, int to, const char *path) {
  if (ioctl(to, FICLONE, from) == 0) return;
  struct stat stat;
  if (fstat(from, &stat) != 0) die_errno("stat", path);
  for (off_t at = 0; at < stat.st_size;) {
    off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0) break;
    at = data;
    static uint8_t piece[256 * 1024];
    const ssize_t got = pread(from, piece, sizeof piece, at);
    if (got < 0) die_errno("read", path);
    if (got == 0) break;
    for (ssize_t done = 0; done < got;) {
      const ssize_t wrote = pwrite(to, piece + done, (size_t)(got - done), at + done);
      if (wrote < 0) die_errno("write", path);
      done += wrote;
    }
    at += got;
  }
  if (ftruncate(to, stat.st_size) != 0) die_errno("write", path);
}

/* The staged file is cloned to one without a name in the worktree, which then takes the place of the old one. */
static void clone_into(struct work *work, const char *staged, int dir, const char *name, const struct entry *entry) {
  const int from = open_own(work->staging, staged, O_RDONLY | O_CLOEXEC);
  if (from < 0) die_errno("open", work->options->staging);
  int to = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const bool nameless = to >= 0;
  if (!nameless) {
    clear_name(work, dir, name);
    to = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0) die_errno("create", here(work));
  }
  copy_bytes(from, to, here(work));
  if (nameless) {
    char fd_path[48];
    snprintf(fd_path, sizeof fd_path, "/proc/self/fd/%d", to);
    clear_name(work, dir, name);
    if (linkat(AT_FDCWD, fd_path, dir, name, AT_SYMLINK_FOLLOW) != 0) die_errno("create", here(work));
  }
  close(to);
  close(from);
  set_metadata(work, dir, name, entry->record, entry->xattrs, NULL);
  unlinkat(work->staging, staged, 0);
}

static void place_file(struct work *work, int dir, const char *name, const struct entry *entry) {
  char staged[32];
  snprintf(staged, sizeof staged, "%zu", work->next_staged++);
  if (work->across || !rename_into(work, staged, dir, name)) {
    work->across = true;
    clone_into(work, staged, dir, name, entry);
  }
  struct stat stat;
  if (fstatat(dir, name, &stat, AT_SYMLINK_NOFOLLOW) != 0) die_errno("stat", here(work));
  struct written *written = must_alloc(sizeof *written);
  memcpy(written->hash, entry->record->hash, HASH_LEN);
  written->size = entry->record->size;
  written->mtime_ns = entry->record->mtime_ns;
  *map_at(&work->result->files, stat.st_ino, 1) = written;
}

static bool same_but_hash(const struct entry *a, const struct entry *b) {
  struct record x = *a->record, y = *b->record;
  memset(x.hash, 0, HASH_LEN);
  memset(y.hash, 0, HASH_LEN);
  return a->size == b->size && memcmp(&x, &y, sizeof x) == 0 && memcmp(a->name, b->name, a->size - sizeof x) == 0;
}

static bool descend(struct work *work, int dir, struct pair *pair, bool filter);

static uint64_t path_key(const char *path, size_t len) { return bytes_key(path, len); }

/* One name that both sides, or one of them, have. Answers whether the directory that holds it was changed by that. */
static bool settle(struct work *work, int dir, const struct cursor *from, const struct node *from_node, const struct cursor *to,
                   const struct node *to_node, bool filter) {
  const struct entry *old = from ? &from->entry : NULL, *new = to ? &to->entry : NULL;
  const struct location old_at = from ? from_node->locations[from->index] : (struct location){0};
  const struct location new_at = to ? to_node->locations[to->index] : (struct location){0};
  const struct entry *any = new ? new : old;
  char name[256];
  memcpy(name, any->name, any->record->name_len);
  name[any->record->name_len] = 0;
  const int part = filter ? selected(&work->options->selection, here(work), work->path.len) : INSIDE;
  if (part == OUTSIDE) return false;

  if (!new || (part == ON_THE_WAY && new->record->type != 'd')) {
    if (part == ON_THE_WAY) return false;
    if (work->applying) mark_touched(work), remove_entry(work, dir, old, old_at);
    else check_removal(work, old, old_at);
    return true;
  }
  const uint8_t type = new->record->type;
  if (type == 'd') {
    const bool was_dir = old && old->record->type == 'd';
    bool metadata = part == INSIDE && (!was_dir || !same_but_hash(old, new));
    const bool below = !was_dir || memcmp(old->record->hash, new->record->hash, HASH_LEN) != 0;
    if (was_dir && !below) {
      bool relink = (to_node->flags & NODE_HAS_LINKS) && work->replaced.used;
      if (relink) {
        struct node look = node_load(work->store, new_at, new->record->hash, here(work));
        relink = look.flags & NODE_HAS_LINKS;
        node_free(&look);
      }
      if (!relink && !metadata) return false;
      if (!relink) {
        if (work->applying) set_metadata(work, dir, name, new->record, new->xattrs, NULL), work->result->adjusted++;
        else refuse_stuck(work->root, here(work));
        return false;
      }
    }
    if (!work->applying && old && !was_dir) check_removal(work, old, old_at);
    else if (!work->applying && metadata) refuse_stuck(work->root, here(work));
    int child = -1, mode = -1;
    if (work->applying) {
      if (old && !was_dir) remove_entry(work, dir, old, old_at);
      if (!was_dir) {
        if (mkdirat(dir, name, 0700) != 0) {
          struct stat found;
          if (errno != EEXIST || fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) != 0) die_errno("create", here(work));
          if (!S_ISDIR(found.st_mode)) {
            move_aside(work, dir, name);
            if (mkdirat(dir, name, 0700) != 0) die_errno("create", here(work));
          }
        }
        work->result->written++;
        metadata = true;
      } else mode = open_up(dir, name);
      child = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (child < 0) die_errno("open", here(work));
    }
    struct pair pair = {0};
    if (was_dir) pair.from = node_load(work->store, old_at, old->record->hash, here(work));
    pair.to = node_load(work->store, new_at, new->record->hash, here(work));
    const bool touched = descend(work, child, &pair, filter && part != INSIDE);
    node_free(&pair.from);
    node_free(&pair.to);
    if (child >= 0) close(child);
    if (work->applying && (metadata || (touched && part == INSIDE))) {
      set_metadata(work, dir, name, new->record, new->xattrs, NULL);
      if (was_dir) work->result->adjusted++;
    } else close_again(work, dir, name, mode);
    return !was_dir;
  }
  if (old && old->size == new->size && memcmp(old->record, new->record, new->size) == 0) {
    if (type != 'h' || !map_get(&work->replaced, path_key(new->link, new->record->link_len), 1)) return false;
  } else if (old && old->record->type == 'f' && type == 'f' && memcmp(old->record->hash, new->record->hash, HASH_LEN) == 0 &&
             old->record->size == new->record->size) {
    if (work->applying) set_metadata(work, dir, name, new->record, new->xattrs, NULL), work->result->adjusted++;
    else refuse_stuck(work->root, here(work));
    return false;
  }
  if (!work->applying && old) check_removal(work, old, old_at);
  else if (!work->applying) refuse_stuck(work->root, here(work));
  if (type == 'f') {
    *map_at(&work->replaced, path_key(here(work), work->path.len), 1) = work;
    if (!work->applying) {
      stage_later(work, new, new_at);
      return true;
    }
  }
  if (!work->applying) return true;
  mark_touched(work);
  struct stat found;
  if (old && old->record->type == 'd') remove_entry(work, dir, old, old_at);
  else if (old ? changed_meanwhile(work, dir, name, old) : fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) == 0)
    move_aside(work, dir, name);
  if (type == 'f') place_file(work, dir, name, new);
  else place_special(work, dir, name, new);
  work->result->written++;
  if (work->result->written == 1) kill_point("restore-first");
  return true;
}

/* Files first, directories after: the first of several hard links comes before the others, as it does in a scan. */
static bool descend_kind(struct work *work, int dir, struct pair *pair, bool filter, bool directories) {
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
      const size_t before = push(work, any->name, any->record->name_len);
      if (settle(work, dir, order <= 0 ? &from : NULL, &pair->from, order >= 0 ? &to : NULL, &pair->to, filter)) touched = true;
      pop(work, before);
    }
    if (order <= 0) cursor_next(&from);
    if (order >= 0) cursor_next(&to);
  }
  return touched;
}

static bool descend(struct work *work, int dir, struct pair *pair, bool filter) {
  const bool files = descend_kind(work, dir, pair, filter, false);
  return descend_kind(work, dir, pair, filter, true) || files;
}

static void pass(struct work *work, const struct node *from_top, const struct node *to_top) {
  struct cursor from = {0}, to;
  struct pair pair = {0};
  cursor_start(&to, to_top->canonical, to_top->canonical_len);
  if (from_top->bytes) {
    cursor_start(&from, from_top->canonical, from_top->canonical_len);
    pair.from = node_load(work->store, from_top->locations[0], from.entry.record->hash, "");
  }
  pair.to = node_load(work->store, to_top->locations[0], to.entry.record->hash, "");
  const int mode = work->applying ? open_up(work->root, ".") : -1;
  const bool touched = descend(work, work->root, &pair, work->options->selection.count > 0);
  const bool metadata = !from_top->bytes || !same_but_hash(&from.entry, &to.entry);
  if (work->applying && !work->options->selection.count && (touched || metadata))
    set_metadata(work, work->root, ".", to.entry.record, to.entry.xattrs, NULL);
  else close_again(work, work->root, ".", mode);
  node_free(&pair.from);
  node_free(&pair.to);
}

static void apply(struct store *store, const struct restore_options *options, struct restore_result *result) {
  memset(result, 0, sizeof *result);
  struct work work = {.store = store, .options = options, .result = result, .tree = -1};
  buf_add(&work.path, "", 1);
  work.path.len = 0;
  work.root = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work.root < 0) die_errno("open", options->directory);
  work.staging = open(options->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work.staging < 0) die_errno("open", options->staging);
  stuck_below(work.root);
  struct stat there, here_too;
  if (fstat(work.root, &there) != 0 || fstat(work.staging, &here_too) != 0) die_errno("stat", options->directory);
  work.across = there.st_dev != here_too.st_dev;
  if (options->tree) {
    work.tree = open(options->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work.tree < 0 && errno == EACCES) die_errno("open", options->tree);
    if (work.tree < 0) die("corrupt", "the stored tree %s is missing", options->tree);
  }
  struct node from = {0}, to = node_load_top(store, &options->to);
  if (!options->from_nothing) from = node_load_top(store, &options->from);
  pass(&work, &from, &to);
  uint64_t bytes = 0;
  for (size_t i = 0; i < work.staged_count; i++) bytes += work.staged[i].record.size;
  jobs_run(stage_one, &work, work.staged_count, work.staged_count > 16 || bytes > (1 << 20));
  kill_point("restore-staged");
  if (work.replaced.cap) memset(work.replaced.slots, 0, work.replaced.cap * sizeof *work.replaced.slots);
  work.replaced.used = 0;
  work.applying = true;
  /* What was empty is nobody's work. */
  workspace_touched = !options->from_nothing;
  pass(&work, &from, &to);
  kill_point("restore-applied");
  node_free(&from);
  node_free(&to);
  for (size_t i = 0; i < work.staged_count; i++) {
    free(work.staged[i].path);
    free((void *)work.staged[i].xattrs);
  }
  free(work.staged);
  free(work.replaced.slots);
  free(work.linked.slots);
  free(work.path.data);
  if (work.tree >= 0) close(work.tree);
  close(work.staging);
  close(work.root);
}

void restore(struct store *store, const struct restore_options *options, const struct scan_options *again, struct restore_result *result,
             struct scan_result *found) {
  apply(store, options, result);
  struct scan_options after = *again;
  after.directory = options->directory;
  after.written = &result->files;
  after.touched = &result->touched;
  /* A restore of some paths leaves a tree that no snapshot holds; then there are no places to prefer. */
  if (!options->selection.count) after.prefer = &options->to;
  scan(store, &after, found);
  for (size_t i = 0; i < result->files.cap; i++) free(result->files.slots[i].value);
  free(result->files.slots);
  free(result->touched.slots);
}
