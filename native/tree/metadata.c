#define _GNU_SOURCE
#include "metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "xattrs.h"

static void count_owner(struct refused *refused, const char *path) {
  if (errno != EPERM && errno != EINVAL) die_errno("change the owner of", path);
  __atomic_add_fetch(&refused->owners, 1, __ATOMIC_RELAXED);
}

static void write_xattrs(int dir, const char *name, const struct record *record, const uint8_t *xattrs, struct refused *refused) {
  const unsigned count = xattrs_write(dir, name, xattrs, record->xattr_len);
  if (count) __atomic_add_fetch(&refused->attributes, count, __ATOMIC_RELAXED);
}

static void times_of(const struct record *record, struct timespec times[2]) {
  const int64_t ns = record->mtime_ns;
  times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
  times[1] = (struct timespec){.tv_sec = ns / 1000000000 - (ns % 1000000000 < 0), .tv_nsec = (ns % 1000000000 + 1000000000) % 1000000000};
}

static bool is_owned(const struct stat *now, const struct record *record) {
  return now->st_uid == record->uid && now->st_gid == record->gid;
}

void metadata_of_new(int fd, int dir, const char *name, const struct record *record, const uint8_t *xattrs, const char *path,
                     struct refused *refused, struct stat *out) {
  struct timespec times[2];
  times_of(record, times);
  if (futimens(fd, times) != 0) die_errno("set the time of", path);
  if (fstat(fd, out) != 0) die_errno("stat", path);
  if (is_owned(out, record) && !record->xattr_len && (out->st_mode & 07777) == record->mode) return;
  if (!is_owned(out, record) && fchown(fd, record->uid, record->gid) != 0) count_owner(refused, path);
  if (record->xattr_len) write_xattrs(dir, name, record, xattrs, refused);
  /* After the owner, since changing that clears set-user-id bits, and after an ACL, which sets the group's bits. */
  if (fchmod(fd, record->mode) != 0) die_errno("change the mode of", path);
  if (fstat(fd, out) != 0) die_errno("stat", path);
}

void metadata_set(int dir, const char *name, const struct record *record, const uint8_t *xattrs, const char *path,
                  struct refused *refused) {
  struct stat now;
  if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) != 0) die_errno("stat", path);
  if (!is_owned(&now, record) && fchownat(dir, name, record->uid, record->gid, AT_SYMLINK_NOFOLLOW) != 0) count_owner(refused, path);
  write_xattrs(dir, name, record, xattrs, refused);
  /* After the owner and an ACL, as above. Somebody may be at work in a worktree: an entry that has just become a symbolic link must
     not lead us out of it. */
  if (record->type != 'l' && fchmodat(dir, name, record->mode, AT_SYMLINK_NOFOLLOW) != 0) die_errno("change the mode of", path);
  struct timespec times[2];
  times_of(record, times);
  if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) != 0) die_errno("set the time of", path);
}
