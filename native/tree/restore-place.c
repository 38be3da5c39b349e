#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "below.h"
#include "content.h"
#include "jobs.h"
#include "listing.h"
#include "restore-work.h"
#include "shut.h"
#include "special.h"
#include "xattrs.h"

/* An entry that is called `staged` in the directory `from` and belongs to the name `name` in `dir`. */
static void move_away(struct work *work, int from, const char *staged, int dir, const char *name) {
  if (mkdir(work->options->kept, 0700) != 0 && errno != EEXIST) die_errno("create", work->options->kept);
  const int kept = open(work->options->kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (kept < 0) die_errno("open", work->options->kept);
  char to[32];
  snprintf(to, sizeof to, "%llu", (unsigned long long)work->result->moved_aside++);
  if (renameat(from, staged, kept, to) != 0) {
    if (errno != EXDEV) die_errno("move aside", here(work));
    /* The name contains the id of this restore, because a file that an earlier restore kept may still be there. */
    char beside[300];
    const bool cut = strlen(name) > 200; /* two long names could be cut to the same one */
    snprintf(beside, sizeof beside, "%.*s%s%s.kept-by-restore-%.32s", cut ? 180 : 200, name, cut ? "~" : "", cut ? to : "",
             strrchr(work->options->kept, '/') + 1);
    if (renameat(from, staged, dir, beside) != 0) die_errno("move aside", here(work));
    (void)rmdir(work->options->kept);
  }
  close(kept);
}

/* A thread is woken for so many files. */
#define WORTH_THREADS 4

void move_aside(struct work *work, int dir, const char *name) { move_away(work, dir, name, dir, name); }

/* Whether a hard link still is one to the same file. The file itself is checked under its first name. */
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

bool changed_meanwhile(struct work *work, int dir, const char *name, const struct entry *seen) {
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

int open_up(int dir, const char *name) {
  struct stat now;
  if (geteuid() == 0 || fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(now.st_mode) || (now.st_mode & 0700) == 0700)
    return -1;
  const mode_t mode = now.st_mode & 07777;
  return fchmodat(dir, name, mode | 0700, AT_SYMLINK_NOFOLLOW) == 0 ? (int)mode : -1;
}

void close_again(struct work *work, int dir, const char *name, int mode) {
  if (mode >= 0 && fchmodat(dir, name, (mode_t)mode, AT_SYMLINK_NOFOLLOW) != 0) die_errno("change the mode of", here(work));
}

void remove_entry(struct work *work, int dir, const struct entry *entry, struct location at) {
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
      const size_t before = work_push(work, cursor.entry.name, cursor.entry.record->name_len);
      remove_entry(work, fd, &cursor.entry, node.locations[cursor.index]);
      work_pop(work, before);
    }
    close(fd);
  } else if (errno == ENOTDIR || errno == ELOOP) move_aside(work, dir, name); /* it is no directory any more */
  else if (errno != ENOENT) die_errno("open", here(work));
  node_free(&node);
  if (unlinkat(dir, name, AT_REMOVEDIR) == 0) work->result->removed++;
  else if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT) die_errno("remove", here(work));
}

/* Removes the entry with this name. A directory is still there only when it holds ignored files: it is moved aside. */
static void clear_name(struct work *work, int dir, const char *name) {
  if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR && errno != EPERM) die_errno("replace", here(work));
  move_aside(work, dir, name);
}

/* False when the worktree is another subvolume or mount, into which nothing can be renamed. */
static bool rename_into(struct work *work, int from, const char *staged, int dir, const char *name) {
  if (renameat(from, staged, dir, name) != 0) {
    if (errno == EXDEV) return false;
    if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST) die_errno("write", here(work));
    move_aside(work, dir, name);
    if (renameat(from, staged, dir, name) != 0) die_errno("write", here(work));
  }
  return true;
}

/* False when it is a hard link to a file on another filesystem. */
static bool create_special(struct work *work, int dir, const char *name, const struct entry *entry) {
  if (entry->record->type == 'h') return special_link(work->root, entry, dir, name, here(work));
  special_create(dir, name, entry, here(work));
  set_metadata(work, dir, name, entry->record, entry->xattrs);
  return true;
}

void place_special(struct work *work, int dir, const char *name, const struct entry *entry) {
  bool placed = !work->across && create_special(work, work->staging, "special", entry);
  if (placed) {
    placed = rename_into(work, work->staging, "special", dir, name);
    /* Renaming one hard link over another of the same file does nothing at all, so it may still be here. */
    unlinkat(work->staging, "special", 0);
  }
  if (placed) return;
  clear_name(work, dir, name);
  if (!create_special(work, dir, name, entry)) die_errno("create", here(work));
}

static void copy_bytes(int from, int to, const char *path) {
  if (ioctl(to, FICLONE, from) == 0) return;
  struct stat stat;
  if (fstat(from, &stat) != 0) die_errno("stat", path);
  for (off_t at = 0; at < stat.st_size;) {
    off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0) break;
    at = data;
    static _Thread_local uint8_t piece[64 * 1024];
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

static bool inherits_acl(struct spot *spot) {
  if (spot->inherits < 0) spot->inherits = fgetxattr(spot->fd, "system.posix_acl_default", NULL, 0) > 0;
  return spot->inherits;
}

/* Makes the file anew in place, from one that cannot be renamed there: its blocks are shared where that works. Answers its inode. */
static uint64_t clone_into(struct work *work, int from, struct spot *spot, const char *name, const struct entry *entry) {
  struct stat stat;
  if (from < 0) die_errno("open the new content of", here(work));
  clear_name(work, spot->fd, name);
  const int to = openat(spot->fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, entry->record->mode & 0777);
  if (to < 0) die_errno("create", here(work));
  copy_bytes(from, to, here(work));
  if (inherits_acl(spot)) (void)xattrs_write(spot->fd, name, NULL, 0);
  metadata_of_new(to, spot->fd, name, entry->record, entry->xattrs, here(work), &work->result->refused, &stat);
  close(to);
  close(from);
  return stat.st_ino;
}

/*
 * The new file and the old one change places: the old one is then in the staging directory, where somebody who has just written to it is
 * found out without a gap, and where it is removed with everything else. False where the two cannot change places.
 */
static bool exchange_into(struct work *work, int from, const char *staged, int dir, const char *name, const struct entry *old) {
  if (renameat2(from, staged, dir, name, RENAME_EXCHANGE) != 0) return false;
  if (changed_meanwhile(work, from, staged, old)) move_away(work, from, staged, dir, name);
  return true;
}

static void note_written(struct work *work, const struct staged *staged) {
  struct written *written = must_alloc(sizeof *written);
  memcpy(written->hash, staged->record.hash, HASH_LEN);
  written->size = staged->record.size;
  written->mtime_ns = staged->record.mtime_ns;
  written->has_xattrs = staged->record.xattr_len > 0;
  *map_at(&work->result->files, staged->ino, 1) = written;
}

struct clone_job {
  struct work *work;
  struct spot *spot;
  int from; /* the directory in the stored tree */
};

/* Makes one file anew in the staging directory, and moves it over the old one. */
static void place_clone(void *context, size_t at, struct content_memory *memory) {
  (void)memory;
  static pthread_mutex_t checking = PTHREAD_MUTEX_INITIALIZER;
  struct clone_job *job = context;
  struct work *work = job->work;
  const struct placing *placing = &work->placing[at];
  struct staged *staged = placing->staged;
  char name[256], staged_name[32];
  struct stat stat;
  memcpy(name, placing->new.name, staged->record.name_len);
  name[staged->record.name_len] = 0;
  snprintf(staged_name, sizeof staged_name, "%zu", placing->number);
  const int from = openat(job->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (from < 0) die_errno("open the new content of", staged->path);
  const int to = openat(work->staging, staged_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, staged->record.mode & 0777);
  if (to < 0) die_errno("create", staged->path);
  if (staged->record.size) copy_bytes(from, to, staged->path);
  metadata_of_new(to, work->staging, staged_name, &staged->record, staged->xattrs, staged->path, &work->result->refused, &stat);
  close(from);
  close(to);
  staged->ino = stat.st_ino;
  pthread_mutex_lock(&checking);
  if (placing->had_old && changed_meanwhile(work, job->spot->fd, name, &placing->old)) move_aside(work, job->spot->fd, name);
  pthread_mutex_unlock(&checking);
  if (rename_into(work, work->staging, staged_name, job->spot->fd, name)) return;
  /* A subvolume inside the worktree: nothing can be renamed into it. */
  struct spot other = *job->spot;
  staged->ino = clone_into(work, openat(work->staging, staged_name, O_RDONLY | O_CLOEXEC), &other, name, &placing->new);
  unlinkat(work->staging, staged_name, 0);
}

void place_clones(struct work *work, struct spot *spot) {
  if (!work->placing_count) return;
  const char *name;
  struct clone_job job = {work, spot, near_below(&work->near, work->tree, work->placing[0].staged->path, &name)};
  if (job.from < 0) die_errno("open the stored directory of", work->placing[0].staged->path);
  jobs_run(place_clone, &job, work->placing_count, work->placing_count >= WORTH_THREADS);
  for (size_t i = 0; i < work->placing_count; i++) note_written(work, work->placing[i].staged);
  work->placing_count = 0;
}

static void place_later(struct work *work, struct staged *staged, const struct entry *new, const struct entry *old) {
  if (work->placing_count == work->placing_cap) {
    work->placing_cap = work->placing_cap ? work->placing_cap * 2 : 64;
    work->placing = must_realloc(work->placing, work->placing_cap * sizeof *work->placing);
  }
  struct placing *placing = &work->placing[work->placing_count++];
  *placing = (struct placing){.staged = staged, .number = (size_t)(staged - work->staged), .new = *new, .had_old = old};
  if (old) placing->old = *old;
}

void place_file(struct work *work, struct spot *spot, const char *name, const struct entry *entry, const struct entry *old) {
  char staged_name[32];
  int dir;
  struct staged *staged = stage_next(work, &dir, staged_name);
  if (work->clones && !work->across) {
    place_later(work, staged, entry, old);
    return;
  }
  const bool exchanged = old && !work->across && exchange_into(work, dir, staged_name, spot->fd, name, old);
  if (!exchanged && old && changed_meanwhile(work, spot->fd, name, old)) move_aside(work, spot->fd, name);
  if (work->clones) staged->ino = clone_into(work, content_open(&work->near, work->tree, staged->path), spot, name, entry);
  else if (work->across || (!exchanged && !rename_into(work, dir, staged_name, spot->fd, name))) {
    staged->ino = clone_into(work, open_own(dir, staged_name, O_RDONLY | O_CLOEXEC), spot, name, entry);
    unlinkat(dir, staged_name, 0);
  }
  note_written(work, staged);
}
