#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs.h"
#include "restore-work.h"
#include "retire.h"

/* One thread writes a group, into a directory of its own: threads do not wait for each other, and small directories are quick. */
#define GROUP 64

void stage_later(struct work *work, const struct entry *entry, struct location at) {
  if (work->staged_count == work->staged_cap) {
    work->staged_cap = work->staged_cap ? work->staged_cap * 2 : 64;
    work->staged = must_realloc(work->staged, work->staged_cap * sizeof *work->staged);
  }
  struct staged *staged = &work->staged[work->staged_count++];
  *staged = (struct staged){.record = *entry->record, .location = at, .path = must_strdup(here(work))};
  if (!entry->record->xattr_len) return;
  staged->xattrs = must_alloc(entry->record->xattr_len);
  memcpy(staged->xattrs, entry->xattrs, entry->record->xattr_len);
}

/* Answers the new file, still open. */
static int stage_one(struct work *work, struct staged *staged, struct near_below *near, int dir, size_t at, struct content_memory *memory) {
  char name[32];
  struct stat stat;
  snprintf(name, sizeof name, "%zu", at);
  const int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, staged->record.mode & 0777);
  if (fd < 0) die_errno("create a file in", work->options->staging);
  content_give(work->store, near, work->tree, &staged->record, staged->location, staged->path, fd, memory);
  metadata_of_new(fd, dir, name, &staged->record, staged->xattrs, staged->path, &work->result->refused, &stat);
  staged->ino = stat.st_ino;
  return fd;
}

/*
 * Has the content of some files on its way to the disk before their names are: the journal that will hold the names is written after it.
 * For a few files that is quicker than to sync the filesystem.
 */
static void write_out(const int *files, size_t count) {
  for (size_t i = 0; i < count; i++) (void)sync_file_range(files[i], 0, 0, SYNC_FILE_RANGE_WRITE);
  const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (size_t i = 0; i < count; i++)
    if (sync_file_range(files[i], 0, 0, wait) != 0 && fsync(files[i]) != 0) die_errno("sync", "a new file");
}

static int open_group(struct work *work, size_t group, bool make) {
  char name[32];
  snprintf(name, sizeof name, "%zu", group);
  if (make && mkdirat(work->staging, name, 0700) != 0) die_errno("create a directory in", work->options->staging);
  const int dir = openat(work->staging, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) die_errno("open a directory in", work->options->staging);
  return dir;
}

static void stage_group(void *context, size_t group, struct content_memory *memory) {
  struct work *work = context;
  const size_t end = (group + 1) * GROUP < work->staged_count ? (group + 1) * GROUP : work->staged_count;
  struct near_below near = {.dir = -1};
  int files[GROUP];
  size_t made = 0;
  const int dir = work->clones ? -1 : open_group(work, group, true);
  for (size_t at = group * GROUP; at < end; at++) {
    struct staged *staged = &work->staged[at];
    if (work->clones) content_compare(&near, work->tree, &staged->record, staged->path, memory);
    else files[made++] = stage_one(work, staged, &near, dir, at, memory);
  }
  if (work->options->durable && work->staged_count <= GROUP) write_out(files, made);
  while (made) close(files[--made]);
  near_forget(&near);
  if (dir >= 0) close(dir);
}

void stage_all(struct work *work) {
  jobs_run(stage_group, work, (work->staged_count + GROUP - 1) / GROUP, true);
  /* Content first: whatever a power cut leaves of the worktree, no file in it lacks what was written to it. Clones share what is on the
     disk already. */
  if (work->options->durable && !work->clones && work->staged_count > GROUP && syncfs(work->staging) != 0)
    die_errno("sync", work->options->staging);
}

/* `next` is the first file of the next group, or one more than the last file. */
static void leave_group(struct work *work, size_t next) {
  if (work->group < 0) return;
  close(work->group);
  retire(work->options->staging, (next - 1) / GROUP, (next - 1) / GROUP * GROUP, next);
}

struct staged *stage_next(struct work *work, int *dir, char name[32]) {
  const size_t at = work->next_staged++;
  snprintf(name, 32, "%zu", at);
  if (!work->clones && (work->group < 0 || at % GROUP == 0)) {
    leave_group(work, at);
    work->group = open_group(work, at / GROUP, false);
  }
  *dir = work->group;
  return &work->staged[at];
}

void stage_forget(struct work *work) {
  leave_group(work, work->next_staged);
  for (size_t i = 0; i < work->staged_count; i++) {
    free(work->staged[i].path);
    free(work->staged[i].xattrs);
  }
  free(work->staged);
}
