/* What belongs to a file besides its content, set whole; and further names of a file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent.h"

#define SECOND_NS 1000000000LL

/* The same as in native/pool/attributes.c: these are part of a file, others belong to the filesystem that it is on. */
static bool is_carried(const char *name) {
  if (strncmp(name, "user.", 5) == 0) return strncmp(name, "user.overlay.", 13) != 0;
  return strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
         strcmp(name, "system.posix_acl_default") == 0;
}

static bool clear_attributes(int fd) {
  static char names[XATTR_LIST_MAX];
  ssize_t length = flistxattr(fd, names, sizeof names);
  if (length < 0) return errno == EOPNOTSUPP;
  for (char *at = names; at < names + length; at += strlen(at) + 1)
    if (is_carried(at) && fremovexattr(fd, at) < 0 && errno != ENODATA) return false;
  return true;
}

struct wanted {
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  struct timespec times[2];
};

static bool set_plain(const char *path, int fd, const struct wanted *wanted) {
  /* Owner before mode: changing the owner takes set-user-id away. */
  if (fd < 0) return lchown(path, wanted->uid, wanted->gid) == 0 && utimensat(AT_FDCWD, path, wanted->times, AT_SYMLINK_NOFOLLOW) == 0;
  return clear_attributes(fd) && fchown(fd, wanted->uid, wanted->gid) == 0 && fchmod(fd, wanted->mode & 07777) == 0;
}

void file_attributes(struct channel *channel, struct reader *body) {
  const char *path = read_string(body);
  struct wanted wanted = {.mode = read_u32(body)};
  wanted.uid = read_u32(body);
  wanted.gid = read_u32(body);
  int64_t mtime_ns = (int64_t)read_u64(body);
  uint32_t count = read_u32(body);
  struct reader extended = *body;
  for (uint32_t i = 0; i < count && !body->bad; i++) {
    size_t length;
    const char *name = read_string(body);
    read_bytes(body, &length);
    if (!body->bad && !is_carried(name)) body->bad = true;
  }
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request is malformed");
    return;
  }
  if (!path_is_absolute(channel, path)) return;
  int64_t rest = (mtime_ns % SECOND_NS + SECOND_NS) % SECOND_NS;
  wanted.times[0].tv_nsec = UTIME_OMIT;
  wanted.times[1] = (struct timespec){(time_t)((mtime_ns - rest) / SECOND_NS), (long)rest};
  struct stat st;
  if (lstat(path, &st) < 0) {
    channel_fail_errno(channel, errno, "cannot look at %.1024s", path);
    return;
  }
  bool link = S_ISLNK(st.st_mode);
  /* Not blocking, should it have become a FIFO. */
  int fd = link ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if ((fd < 0 && !link) || !set_plain(path, fd, &wanted)) {
    channel_fail_errno(channel, errno, "cannot set owner, mode or time of %.1024s", path);
    if (fd >= 0) close(fd);
    return;
  }
  for (uint32_t i = 0; i < count; i++) {
    size_t length;
    const char *name = read_string(&extended);
    const uint8_t *value = read_bytes(&extended, &length);
    if (fd >= 0 && fsetxattr(fd, name, value, length, 0) == 0) continue;
    channel_fail_errno(channel, fd < 0 ? EOPNOTSUPP : errno, "cannot set %.256s of %.1024s", name, path);
    if (fd >= 0) close(fd);
    return;
  }
  bool timed = fd < 0 || futimens(fd, wanted.times) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (timed) channel_done(channel, NULL);
  else channel_fail_errno(channel, error, "cannot set the time of %.1024s", path);
}

void file_link(struct channel *channel, struct reader *body) {
  const char *existing = read_string(body);
  const char *path = read_string(body);
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request is malformed");
    return;
  }
  if (!path_is_absolute(channel, existing) || !path_is_absolute(channel, path)) return;
  uint64_t random = 0;
  char temporary[PATH_MAX];
  int directory = (int)(strrchr(path, '/') + 1 - path);
  int n = getrandom(&random, sizeof random, 0) == sizeof random
              ? snprintf(temporary, sizeof temporary, "%.*s.coppice-%016llx", directory, path, (unsigned long long)random)
              : -1;
  if (n < 0 || n >= PATH_MAX) {
    channel_fail_errno(channel, ENAMETOOLONG, "cannot link beside %.1024s", path);
    return;
  }
  /* Renaming one name of a file over another of the same file does nothing: then the first is still to be removed. */
  if (link(existing, temporary) < 0 || rename(temporary, path) < 0) {
    int error = errno;
    unlink(temporary);
    channel_fail_errno(channel, error, "cannot link %.768s to %.768s", path, existing);
    return;
  }
  unlink(temporary);
  channel_done(channel, NULL);
}
