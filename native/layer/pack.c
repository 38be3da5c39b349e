#define _GNU_SOURCE
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../lib/tar.h"

enum { MAX_DEPTH = 2000 };

/* The first path of each file that has several. */
struct linked {
  struct linked *next;
  dev_t device;
  ino_t inode;
  char path[];
};
#define BUCKETS 65536

static struct linked *links[BUCKETS];
static uint64_t bytes_left;
static char *copy;

static void put(const void *data, size_t length) {
  if (fwrite(data, 1, length, stdout) != length) stop_errno("write the layer");
}

static void put_padding(uint64_t size) {
  static const char zeros[TAR_BLOCK];
  put(zeros, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static void put_octal(char *field, size_t size, uint64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%0*llo", (int)size - 1, (unsigned long long)value);
  memcpy(field, digits, size - 1);
}

static bool fits_octal(uint64_t value, size_t size) { return value >> 3 * (size - 1) == 0; }

static void put_header(struct tar_header *header) {
  tar_seal(header);
  put(header, TAR_BLOCK);
}

struct records {
  char *text;
  size_t length, room;
};

/* One record of an extended header: its length counts itself. */
static void add_record(struct records *records, const char *prefix, const char *key, const void *value, size_t length) {
  const size_t rest = strlen(prefix) + strlen(key) + length + 3;
  size_t total = rest + 1;
  char digits[24];
  while ((size_t)snprintf(digits, sizeof digits, "%zu", total) + rest != total)
    total = rest + (size_t)snprintf(digits, sizeof digits, "%zu", total);
  if (records->text == NULL || records->length + total + 1 > records->room)
    records->text = must(realloc(records->text, records->room = (records->length + total) * 2));
  char *at = records->text + records->length;
  at += sprintf(at, "%zu %s%s=", total, prefix, key);
  memcpy(at, value, length);
  at[length] = '\n';
  records->length += total;
}

static void add_number(struct records *records, const char *key, uint64_t value) {
  char digits[24];
  const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  add_record(records, "", key, digits, (size_t)length);
}

/* To the nanosecond, and also before 1970. */
static void add_time(struct records *records, struct timespec time) {
  char text[64];
  const char *sign = time.tv_sec < 0 ? "-" : "";
  if (time.tv_sec < 0 && time.tv_nsec > 0) {
    time.tv_sec++;
    time.tv_nsec = 1000000000 - time.tv_nsec;
  }
  int length = snprintf(text, sizeof text, "%s%lld", sign, llabs((long long)time.tv_sec));
  if (time.tv_nsec > 0) length += snprintf(text + length, sizeof text - (size_t)length, ".%09ld", time.tv_nsec);
  add_record(records, "", "mtime", text, (size_t)length);
}

/* True when it stands in the header itself: short, and plain ASCII. */
static bool put_text(char *field, size_t size, const char *text) {
  const size_t length = strlen(text);
  if (length > size) return false;
  for (const char *at = text; *at != 0; at++)
    if ((unsigned char)*at >= 0x80) return false;
  memcpy(field, text, length);
  return true;
}

static void add_attributes(struct records *records, int fd, const char *name, const char *path, bool *opaque) {
  static char names[65536], value[MAX_VALUE];
  char place[300];
  snprintf(place, sizeof place, "/proc/self/fd/%d/%s", fd, name);
  const ssize_t length = llistxattr(place, names, sizeof names);
  if (length < 0 && errno != EOPNOTSUPP) stop_errno("list the attributes of %.1000s", path);
  for (char *at = names; at < names + length; at += strlen(at) + 1) {
    const bool is_mark = strcmp(at, OPAQUE) == 0;
    if (!is_mark && !keeps_attribute(at)) continue;
    const ssize_t size = lgetxattr(place, at, value, sizeof value);
    if (size < 0) stop_errno("read the attribute %s of %.1000s", at, path);
    if (is_mark) *opaque = size == 1 && value[0] == 'y';
    else add_record(records, "SCHILY.xattr.", at, value, (size_t)size);
  }
}

static void put_entry(struct records *records, const struct stat *status, const char *path, char type, uint64_t size, const char *link) {
  struct tar_header header = {.type = type};
  const struct timespec changed = status->st_mtim;
  const bool plain_time = changed.tv_nsec == 0 && changed.tv_sec >= 0 && fits_octal((uint64_t)changed.tv_sec, sizeof header.mtime);
  if (!put_text(header.name, sizeof header.name, path)) {
    add_record(records, "", "path", path, strlen(path));
    memcpy(header.name, "pax-entry", 9);
  }
  if (link != NULL && !put_text(header.link, sizeof header.link, link)) add_record(records, "", "linkpath", link, strlen(link));
  if (!fits_octal(size, sizeof header.size)) add_number(records, "size", size);
  if (!fits_octal(status->st_uid, sizeof header.uid)) add_number(records, "uid", status->st_uid);
  if (!fits_octal(status->st_gid, sizeof header.gid)) add_number(records, "gid", status->st_gid);
  if (!plain_time) add_time(records, changed);
  if (records->length > 0) {
    struct tar_header extension = {.name = "PaxHeaders/entry", .type = 'x'};
    put_octal(extension.mode, sizeof extension.mode, 0644);
    put_octal(extension.uid, sizeof extension.uid, 0);
    put_octal(extension.gid, sizeof extension.gid, 0);
    put_octal(extension.size, sizeof extension.size, records->length);
    put_octal(extension.mtime, sizeof extension.mtime, 0);
    put_header(&extension);
    put(records->text, records->length);
    put_padding(records->length);
    records->length = 0;
  }
  put_octal(header.mode, sizeof header.mode, status->st_mode & 07777);
  put_octal(header.uid, sizeof header.uid, fits_octal(status->st_uid, sizeof header.uid) ? status->st_uid : 0);
  put_octal(header.gid, sizeof header.gid, fits_octal(status->st_gid, sizeof header.gid) ? status->st_gid : 0);
  put_octal(header.size, sizeof header.size, fits_octal(size, sizeof header.size) ? size : 0);
  put_octal(header.mtime, sizeof header.mtime, plain_time ? (uint64_t)changed.tv_sec : 0);
  put_header(&header);
}

static void put_content(int in, const char *name, const char *path, uint64_t size) {
  if (size > bytes_left) stop("too_large", "the files of the layer hold more than an image may");
  bytes_left -= size;
  int fd = openat(in, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) stop_errno("open %.1000s", path);
  for (uint64_t left = size; left > 0;) {
    const ssize_t got = read(fd, copy, left < COPY_BYTES ? (size_t)left : COPY_BYTES);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) stop_errno("read %.1000s", path);
    if (got == 0) stop("internal", "%.1000s became shorter while it was read", path);
    put(copy, (size_t)got);
    left -= (uint64_t)got;
  }
  put_padding(size);
  close(fd);
}

/* The path under which the same file was packed; else remembers this one. */
static const char *seen_before(const struct stat *status, const char *path) {
  struct linked **bucket = &links[status->st_ino % BUCKETS];
  for (struct linked *link = *bucket; link != NULL; link = link->next)
    if (link->inode == status->st_ino && link->device == status->st_dev) return link->path;
  struct linked *link = must(malloc(sizeof *link + strlen(path) + 1));
  *link = (struct linked){*bucket, status->st_dev, status->st_ino};
  strcpy(link->path, path);
  *bucket = link;
  return NULL;
}

static char *join(const char *directory, const char *prefix, const char *name, const char *suffix) {
  char *path;
  if (asprintf(&path, "%s%s%s%s%s", directory, directory[0] == 0 ? "" : "/", prefix, name, suffix) < 0) stop("internal", "out of memory");
  return path;
}

static void put_mark(const char *path) {
  const struct stat plain = {.st_mode = 0};
  struct records none = {0};
  put_entry(&none, &plain, path, '0', 0, NULL);
  free(none.text);
}

static void pack_directory(int directory, const char *path, int depth);

static void pack_below(int in, const char *name, const char *path, const struct stat *status, int depth) {
  if (depth >= MAX_DEPTH) stop("unsupported", "directories lie more than %d deep", MAX_DEPTH);
  struct records records = {0};
  bool opaque = false;
  char *shown = join(path, "", "", ""), *marked = join(path, "", OPAQUE_MARK, "");
  add_attributes(&records, in, name, path, &opaque);
  put_entry(&records, status, shown, '5', 0, NULL);
  free(records.text);
  if (opaque) put_mark(marked);
  free(shown);
  free(marked);
  int inside = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inside < 0) stop_errno("open the directory %.1000s", path);
  pack_directory(inside, path, depth + 1);
  close(inside);
}

static __attribute__((noinline)) void pack_other(int in, const char *name, const char *path, const struct stat *status) {
  struct records records = {0};
  const char *first = status->st_nlink > 1 ? seen_before(status, path) : NULL;
  bool opaque;
  if (first == NULL) add_attributes(&records, in, name, path, &opaque);
  if (first != NULL) put_entry(&records, status, path, '1', 0, first);
  else if (S_ISREG(status->st_mode)) {
    put_entry(&records, status, path, '0', (uint64_t)status->st_size, NULL);
    put_content(in, name, path, (uint64_t)status->st_size);
  } else if (S_ISFIFO(status->st_mode)) put_entry(&records, status, path, '6', 0, NULL);
  else {
    char target[MAX_PATH + 1];
    const ssize_t length = readlinkat(in, name, target, sizeof target - 1);
    if (length < 0) stop_errno("read the link %.1000s", path);
    target[length] = 0;
    put_entry(&records, status, path, '2', 0, target);
  }
  free(records.text);
}

/* Sockets are left out: they mean nothing without the process that listens. */
static void pack_entry(int in, const char *name, const char *directory, int depth) {
  struct stat status;
  if (fstatat(in, name, &status, AT_SYMLINK_NOFOLLOW) < 0) stop_errno("look at %s", name);
  char *path = join(directory, "", name, "");
  if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0)) {
    char *mark = join(directory, WHITEOUT_PREFIX, name, "");
    put_mark(mark);
    free(mark);
  } else if (strncmp(name, WHITEOUT_PREFIX, strlen(WHITEOUT_PREFIX)) == 0) {
    stop("unsupported", "%.1000s cannot be in an image: names that begin with %s stand for deletions there", path, WHITEOUT_PREFIX);
  } else if (S_ISDIR(status.st_mode)) {
    pack_below(in, name, path, &status, depth);
  } else if (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode) || S_ISFIFO(status.st_mode)) {
    pack_other(in, name, path, &status);
  } else if (!S_ISSOCK(status.st_mode)) {
    stop("unsupported", "%.1000s is a device, which cannot be in an image", path);
  }
  free(path);
}

static void pack_directory(int directory, const char *path, int depth) {
  size_t count;
  char **names = list_names(directory, &count);
  for (size_t index = 0; index < count; index++) {
    pack_entry(directory, names[index], path, depth);
    free(names[index]);
  }
  free(names);
}

void pack(uint64_t max_bytes, const char *path) {
  static const char end[2 * TAR_BLOCK];
  bytes_left = max_bytes;
  copy = must(malloc(COPY_BYTES));
  setvbuf(stdout, NULL, _IOFBF, COPY_BYTES);
  int root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (root < 0) stop_errno("open %s", path);
  pack_directory(root, "", 0);
  put(end, sizeof end);
  if (fflush(stdout) != 0) stop_errno("write the layer");
}
