/* Single files, done within the loop: each step is short. Trees are left to workers. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define NO_MODE UINT32_MAX

bool path_is_absolute(struct channel *channel, const char *path) {
  if (path[0] == '/' && strlen(path) < PATH_MAX) return true;
  if (path[0] == '/') channel_fail(channel, "invalid_argument", ENAMETOOLONG, "a path is longer than %d bytes", PATH_MAX - 1);
  else channel_fail(channel, "invalid_argument", EINVAL, "the path %.512s is not absolute", path);
  return false;
}

static bool body_is_whole(struct channel *channel, const struct reader *body) {
  if (read_finished(body)) return true;
  channel_fail(channel, "invalid_argument", EINVAL, "the request is malformed");
  return false;
}

bool make_parents(const char *path) {
  char copy[PATH_MAX];
  if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy) {
    errno = ENAMETOOLONG;
    return false;
  }
  for (char *at = copy + 1; (at = strchr(at, '/')) != NULL; at++) {
    *at = 0;
    if (mkdir(copy, 0755) < 0 && errno != EEXIST) {
      /* Below a read-only parent mkdir complains of that before it sees that the directory is there. */
      int error = errno;
      struct stat st;
      if (stat(copy, &st) < 0 || !S_ISDIR(st.st_mode)) {
        errno = error;
        return false;
      }
    }
    *at = '/';
  }
  return true;
}

static uint8_t kind_of(mode_t mode) {
  if (S_ISREG(mode)) return 0;
  if (S_ISDIR(mode)) return 1;
  if (S_ISLNK(mode)) return 2;
  if (S_ISFIFO(mode)) return 3;
  if (S_ISSOCK(mode)) return 4;
  return 5;
}

/* Some filesystems keep seconds that are too many to be counted as microseconds. */
static int64_t microseconds(struct timespec time) {
  int64_t most = INT64_MAX / 1000000 - 1;
  int64_t seconds = time.tv_sec > most ? most : time.tv_sec < -most ? -most : time.tv_sec;
  return seconds * 1000000 + time.tv_nsec / 1000;
}

void put_stat(struct buffer *b, const char *path, const struct stat *st, const char *target) {
  put_u8(b, kind_of(st->st_mode));
  put_u32(b, st->st_mode & 07777);
  put_u32(b, st->st_uid);
  put_u32(b, st->st_gid);
  put_u64(b, (uint64_t)st->st_size);
  put_u64(b, (uint64_t)microseconds(st->st_mtim));
  put_string(b, path);
  put_u8(b, target != NULL);
  if (target != NULL) put_string(b, target);
}

void file_stat(struct channel *channel, struct reader *body) {
  const char *path = read_string(body);
  if (!body_is_whole(channel, body) || !path_is_absolute(channel, path)) return;
  struct stat st;
  if (lstat(path, &st) < 0) {
    channel_fail_errno(channel, errno, "cannot look at %.1024s", path);
    return;
  }
  char target[PATH_MAX];
  ssize_t n = S_ISLNK(st.st_mode) ? readlink(path, target, sizeof target - 1) : -1;
  if (n >= 0) target[n] = 0;
  struct buffer reply = {0};
  put_stat(&reply, path, &st, n >= 0 ? target : NULL);
  channel_done(channel, &reply);
  buffer_free(&reply);
}

void file_move(struct channel *channel, struct reader *body) {
  const char *from = read_string(body);
  const char *to = read_string(body);
  if (!body_is_whole(channel, body) || !path_is_absolute(channel, from) || !path_is_absolute(channel, to)) return;
  if (rename(from, to) < 0) channel_fail_errno(channel, errno, "cannot move %.768s to %.768s", from, to);
  else channel_done(channel, NULL);
}

void file_mkdir(struct channel *channel, struct reader *body) {
  const char *path = read_string(body);
  bool parents = read_u8(body) != 0;
  uint32_t mode = read_u32(body);
  if (!body_is_whole(channel, body) || !path_is_absolute(channel, path)) return;
  if (parents && !make_parents(path)) {
    channel_fail_errno(channel, errno, "cannot make the directories above %.1024s", path);
    return;
  }
  struct stat st;
  if (mkdir(path, 0755) < 0) {
    int error = errno;
    if (parents && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) channel_done(channel, NULL);
    else channel_fail_errno(channel, error, "cannot make the directory %.1024s", path);
    return;
  }
  if (mode != NO_MODE && chmod(path, mode & 07777) < 0) channel_fail_errno(channel, errno, "cannot set the mode of %.1024s", path);
  else channel_done(channel, NULL);
}

/* ---- reading ---- */

struct reading {
  int fd;
  uint64_t offset;
  uint64_t left;
  char *path;
};

static enum pump pump_reading(struct channel *channel) {
  struct reading *reading = channel->state;
  size_t granted = 0;
  ssize_t n = 0;
  if (reading->left > 0) {
    uint64_t wanted = reading->left < FRAME_MAX_PAYLOAD ? reading->left : FRAME_MAX_PAYLOAD;
    uint8_t *payload = channel_reserve(channel, (size_t)wanted, &granted);
    if (payload == NULL) return PUMP_IDLE;
    n = pread(reading->fd, payload, granted, (off_t)reading->offset);
  }
  if (n < 0 && errno == EINTR) return PUMP_MORE;
  if (n < 0) {
    channel_fail_errno(channel, errno_of_read(reading->fd, errno), "cannot read %.1024s", reading->path);
    return PUMP_IDLE;
  }
  if (n == 0) {
    channel_done(channel, NULL);
    return PUMP_IDLE;
  }
  reading->offset += (uint64_t)n;
  reading->left -= (uint64_t)n;
  channel_commit(channel, 0, (size_t)n);
  return PUMP_MORE;
}

static void close_reading(struct channel *channel) {
  struct reading *reading = channel->state;
  close(reading->fd);
  free(reading->path);
  loop_free(reading);
}

static const struct channel_kind reading_kind = {.pump = pump_reading, .on_close = close_reading};

void file_read(struct channel *channel, struct reader *body) {
  const char *path = read_string(body);
  uint64_t offset = read_u64(body);
  uint64_t length = read_u64(body);
  if (!body_is_whole(channel, body) || !path_is_absolute(channel, path)) return;
  if (offset > INT64_MAX) {
    channel_fail(channel, "invalid_argument", EINVAL, "the offset is too large");
    return;
  }
  /* Not blocking: a FIFO or a device must not hold the agent up, and is refused below. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    channel_fail_errno(channel, errno, "cannot open %.1024s", path);
    return;
  }
  struct stat st = {0};
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    channel_fail(channel, "invalid_argument", S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "%.1024s is not a regular file", path);
    return;
  }
  struct reading *reading = must_alloc(sizeof *reading);
  *reading = (struct reading){.fd = fd, .offset = offset, .left = length, .path = must_copy(path)};
  channel->kind = &reading_kind;
  channel->state = reading;
  channel_activate(channel);
}

/* ---- writing ---- */

struct writing {
  int fd;
  char *path;
  char *temporary;
  uint64_t written;
  /* Zeros at the end that were skipped rather than written: they become a hole. */
  bool sparse_end;
  /* Of a file in stretches: its size, the head of the next stretch as far as it came, and what is left of the current one. */
  uint64_t size;
  uint8_t head[16];
  size_t head_length;
  uint64_t left;
};

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash + 1;
}

/* A link is written through, as every other program does: the file that it names is what is replaced. */
static bool follow_links(const char *path, char resolved[PATH_MAX]) {
  snprintf(resolved, PATH_MAX, "%s", path);
  for (int i = 0; i < 40; i++) {
    char target[PATH_MAX];
    ssize_t n = readlink(resolved, target, sizeof target - 1);
    if (n < 0) return true;
    target[n] = 0;
    if (target[0] == '/') {
      snprintf(resolved, PATH_MAX, "%s", target);
      continue;
    }
    size_t directory = (size_t)(last_part(resolved) - resolved);
    if (directory + (size_t)n >= PATH_MAX) {
      errno = ENAMETOOLONG;
      return false;
    }
    memcpy(resolved + directory, target, (size_t)n + 1);
  }
  errno = ELOOP;
  return false;
}

static bool is_zero(const uint8_t *bytes, size_t length) {
  return length > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

static void writing_data(struct channel *channel, const uint8_t *bytes, size_t length) {
  struct writing *writing = channel->state;
  size_t whole = length;
  if (length >= 4096 && is_zero(bytes, length) && lseek(writing->fd, (off_t)length, SEEK_CUR) >= 0) {
    writing->sparse_end = true;
    length = 0;
  }
  while (length > 0) {
    ssize_t n = write(writing->fd, bytes, length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      channel_fail_errno(channel, errno, "cannot write %.1024s", writing->path);
      return;
    }
    writing->sparse_end = false;
    bytes += n;
    length -= (size_t)n;
  }
  writing->written += whole;
  channel_grant(channel, whole);
}

/* The file gets its name; readers see the old one or this one. */
static void put_into_place(struct channel *channel, struct writing *writing) {
  if (rename(writing->temporary, writing->path) < 0) {
    channel_fail_errno(channel, errno, "cannot replace %.1024s", writing->path);
    return;
  }
  free(writing->temporary);
  writing->temporary = NULL;
  struct buffer reply = {0};
  put_u64(&reply, writing->written);
  channel_done(channel, &reply);
  buffer_free(&reply);
}

static void writing_end(struct channel *channel) {
  struct writing *writing = channel->state;
  if (writing->sparse_end && ftruncate(writing->fd, (off_t)writing->written) < 0) {
    channel_fail_errno(channel, errno, "cannot write %.1024s", writing->path);
    return;
  }
  put_into_place(channel, writing);
}

static uint64_t load_u64(const uint8_t *at) { return load_u32(at) | (uint64_t)load_u32(at + 4) << 32; }

/* Whether the next stretch, whose head is whole, lies behind the one before and inside of the file. */
static bool begin_stretch(struct writing *writing) {
  uint64_t offset = load_u64(writing->head), length = load_u64(writing->head + 8);
  off_t position = lseek(writing->fd, 0, SEEK_CUR);
  if (position < 0 || offset < (uint64_t)position || offset > writing->size || length > writing->size - offset) return false;
  writing->head_length = 0;
  writing->left = length;
  return lseek(writing->fd, (off_t)offset, SEEK_SET) >= 0;
}

static void stretches_data(struct channel *channel, const uint8_t *bytes, size_t length) {
  struct writing *writing = channel->state;
  size_t whole = length;
  while (length > 0) {
    if (writing->left == 0) {
      size_t missing = sizeof writing->head - writing->head_length;
      size_t part = length < missing ? length : missing;
      memcpy(writing->head + writing->head_length, bytes, part);
      writing->head_length += part;
      bytes += part;
      length -= part;
      if (writing->head_length == sizeof writing->head && !begin_stretch(writing)) {
        channel_fail(channel, "invalid_argument", EINVAL, "the stretches of %.1024s are not in order", writing->path);
        return;
      }
      continue;
    }
    ssize_t n = write(writing->fd, bytes, length < writing->left ? length : (size_t)writing->left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      channel_fail_errno(channel, errno, "cannot write %.1024s", writing->path);
      return;
    }
    writing->written += (uint64_t)n;
    writing->left -= (uint64_t)n;
    bytes += n;
    length -= (size_t)n;
  }
  channel_grant(channel, whole);
}

static void stretches_end(struct channel *channel) {
  struct writing *writing = channel->state;
  if (writing->left > 0 || writing->head_length > 0)
    channel_fail(channel, "invalid_argument", EINVAL, "the last stretch of %.1024s is cut off", writing->path);
  else if (ftruncate(writing->fd, (off_t)writing->size) < 0) channel_fail_errno(channel, errno, "cannot write %.1024s", writing->path);
  else put_into_place(channel, writing);
}

static void close_writing(struct channel *channel) {
  struct writing *writing = channel->state;
  if (writing->temporary != NULL) unlink(writing->temporary);
  close(writing->fd);
  free(writing->temporary);
  free(writing->path);
  loop_free(writing);
}

static const struct channel_kind writing_kind = {.on_data = writing_data, .on_end = writing_end, .on_close = close_writing};
static const struct channel_kind stretches_kind = {.on_data = stretches_data, .on_end = stretches_end, .on_close = close_writing};

static int open_temporary(const char *path, char temporary[PATH_MAX]) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return -1;
  int directory = (int)(last_part(path) - path);
  int n = snprintf(temporary, PATH_MAX, "%.*s.coppice-%016llx", directory, path, (unsigned long long)random);
  if (n < 0 || n >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

struct write_request {
  const char *path;
  uint32_t mode;
  const char *owner;
  bool parents;
};

static struct write_request read_write_request(struct reader *body) {
  struct write_request request = {.path = read_string(body)};
  request.mode = read_u32(body);
  request.owner = read_string(body);
  request.parents = read_u8(body) != 0;
  return request;
}

static void begin_writing(struct channel *channel, const struct write_request *request, const struct channel_kind *kind, uint64_t size) {
  const char *asked = request->path, *owner = request->owner;
  if (!path_is_absolute(channel, asked)) return;
  if (*last_part(asked) == 0) {
    channel_fail(channel, "invalid_argument", EISDIR, "%.1024s names a directory", asked);
    return;
  }
  char path[PATH_MAX], temporary[PATH_MAX];
  struct stat st = {.st_mode = S_IFREG | 0644, .st_uid = 0, .st_gid = 0};
  uid_t uid = 0;
  gid_t gid = 0;
  const char *unknown;
  if (request->parents && !make_parents(asked)) {
    channel_fail_errno(channel, errno, "cannot make the directories above %.1024s", asked);
    return;
  }
  if (!follow_links(asked, path)) {
    channel_fail_errno(channel, errno, "cannot follow the link %.1024s", asked);
    return;
  }
  if (stat(path, &st) < 0 && errno != ENOENT) {
    channel_fail_errno(channel, errno, "cannot look at %.1024s", path);
    return;
  }
  if (!S_ISREG(st.st_mode)) {
    channel_fail(channel, "invalid_argument", S_ISDIR(st.st_mode) ? EISDIR : EINVAL, "%.1024s is not a regular file", path);
    return;
  }
  uid = st.st_uid;
  gid = st.st_gid;
  if (*owner != 0) {
    uid_t new_uid;
    gid_t new_gid;
    if (!owner_find(owner, &new_uid, &new_gid, &unknown)) {
      channel_fail(channel, "not_found", 0, "the sandbox has no user or group %.256s", unknown);
      return;
    }
    if (new_uid != (uid_t)-1) uid = new_uid;
    if (new_gid != (gid_t)-1) gid = new_gid;
  }
  int fd = open_temporary(path, temporary);
  if (fd < 0) {
    channel_fail_errno(channel, errno, "cannot write beside %.1024s", path);
    return;
  }
  struct writing *writing = must_alloc(sizeof *writing);
  *writing = (struct writing){.fd = fd, .path = must_copy(path), .temporary = must_copy(temporary), .size = size};
  channel->kind = kind;
  channel->state = writing;
  /* Owner before mode: changing the owner takes set-user-id away. */
  if (((uid != geteuid() || gid != getegid()) && fchown(fd, uid, gid) < 0) ||
      fchmod(fd, (request->mode == NO_MODE ? st.st_mode : request->mode) & 07777) < 0)
    channel_fail_errno(channel, errno, "cannot set the owner or mode of %.1024s", path);
}

void file_write(struct channel *channel, struct reader *body) {
  struct write_request request = read_write_request(body);
  if (body_is_whole(channel, body)) begin_writing(channel, &request, &writing_kind, 0);
}

/* A file in stretches of data; what lies between them are holes, however large. */
void file_write_stretches(struct channel *channel, struct reader *body) {
  struct write_request request = read_write_request(body);
  uint64_t size = read_u64(body);
  if (!body_is_whole(channel, body)) return;
  if (size > INT64_MAX) channel_fail(channel, "invalid_argument", EINVAL, "the size is too large");
  else begin_writing(channel, &request, &stretches_kind, size);
}
