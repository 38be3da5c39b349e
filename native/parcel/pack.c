#define _GNU_SOURCE
#include "parcel.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Files with several names, by inode: which number the first of them had. */
struct linked {
  struct linked *next;
  dev_t device;
  ino_t inode;
  uint32_t number;
};
#define BUCKETS 65536

struct packer {
  enum policy policy;
  struct linked *links[BUCKETS];
  uint32_t linked_count;
  char *copy;
};

/* Only counts what it would write. */
static int measuring;
static uint64_t measured;

static void put(const void *data, size_t length) {
  measured += length;
  if (measuring) return;
  if (fwrite(data, 1, length, stdout) != length) stop_errno("write the stream");
}
static void put8(uint8_t value) { put(&value, 1); }
static void put16(uint16_t value) { value = htole16(value), put(&value, 2); }
static void put32(uint32_t value) { value = htole32(value), put(&value, 4); }
static void put64(uint64_t value) { value = htole64(value), put(&value, 8); }

static void put_name(const char *name) {
  put8((uint8_t)strlen(name));
  put(name, strlen(name));
}

/* Paths through /proc/self/fd reach an entry by its directory, and the l- calls do not follow it. Its room on the stack, as that of
   put_target, must not be part of the walk, which is as deep as the tree. */
static __attribute__((noinline)) void put_attributes(struct packer *packer, int directory, const char *name, const struct stat *status,
                                                     int flags) {
  char path[300], names[65536];
  snprintf(path, sizeof path, "/proc/self/fd/%d/%s", directory, name);
  ssize_t length = llistxattr(path, names, sizeof names);
  if (length < 0 && errno != EOPNOTSUPP) stop_errno("list the attributes of %s", name);
  uint16_t count = 0;
  for (char *at = names; at < names + length; at += strlen(at) + 1)
    if (keeps_attribute(packer->policy, at)) count++;
  put8((uint8_t)flags);
  put32(status->st_mode & 07777);
  put32(status->st_uid);
  put32(status->st_gid);
  put64((uint64_t)status->st_mtim.tv_sec);
  put32((uint32_t)status->st_mtim.tv_nsec);
  put16(count);
  for (char *at = names; at < names + length; at += strlen(at) + 1) {
    static char value[MAX_VALUE];
    if (!keeps_attribute(packer->policy, at)) continue;
    ssize_t size = lgetxattr(path, at, value, sizeof value);
    if (size < 0) stop_errno("read the attribute %s of %s", at, name);
    put8((uint8_t)strlen(at));
    put32((uint32_t)size);
    put(at, strlen(at));
    put(value, (size_t)size);
  }
}

/* True when it is another name of what was packed already; the record is written then. */
static int put_link(struct packer *packer, const char *name, const struct stat *status) {
  struct linked **bucket = &packer->links[status->st_ino % BUCKETS];
  for (struct linked *entry = *bucket; entry != NULL; entry = entry->next)
    if (entry->inode == status->st_ino && entry->device == status->st_dev) {
      put8(RECORD_LINK);
      put_name(name);
      put32(entry->number);
      return 1;
    }
  struct linked *entry = must(malloc(sizeof *entry));
  *entry = (struct linked){*bucket, status->st_dev, status->st_ino, packer->linked_count++};
  *bucket = entry;
  return 0;
}

static void put_extent(struct packer *packer, int file, const char *name, off_t from, off_t to) {
  put64((uint64_t)from);
  put64((uint64_t)(to - from));
  if (measuring) {
    measured += (uint64_t)(to - from);
    return;
  }
  while (from < to) {
    size_t wanted = to - from < COPY_BYTES ? (size_t)(to - from) : COPY_BYTES;
    ssize_t got = pread(file, packer->copy, wanted, from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) stop_errno("read %s", name);
    if (got == 0) stop("internal", "%s became shorter while it was read", name);
    put(packer->copy, (size_t)got);
    from += got;
  }
}

static void put_content(struct packer *packer, int directory, const char *name, off_t size) {
  put64((uint64_t)size);
  if (size > 0) {
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) stop_errno("open %s", name);
    for (off_t at = 0; at < size;) {
      off_t data = lseek(file, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) break;
      off_t hole = data < 0 ? -1 : lseek(file, data, SEEK_HOLE);
      if (hole < 0) stop_errno("find what is in %s", name);
      if (hole > size) hole = size;
      if (data < hole) put_extent(packer, file, name, data, hole);
      at = hole;
    }
    close(file);
  }
  put64((uint64_t)size);
  put64(0);
}

static __attribute__((noinline)) void put_target(int directory, const char *name) {
  char target[MAX_TARGET + 1];
  ssize_t length = readlinkat(directory, name, target, sizeof target);
  if (length < 0) stop_errno("read the link %s", name);
  put16((uint16_t)length);
  put(target, (size_t)length);
}

static void pack_directory(struct packer *packer, int directory, int depth);

static void pack_entry(struct packer *packer, int directory, const char *name, int depth) {
  struct stat status;
  if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0) stop_errno("look at %s", name);
  mode_t type = status.st_mode & S_IFMT;
  int linked = type != S_IFDIR && status.st_nlink > 1;
  if (packer->policy == POLICY_MEMORY && type != S_IFREG) stop("internal", "%s is no plain file", name);
  if (linked && put_link(packer, name, &status)) return;
  switch (type) {
  case S_IFDIR:
    put8(RECORD_DIRECTORY);
    break;
  case S_IFREG:
    put8(RECORD_FILE);
    break;
  case S_IFLNK:
    put8(RECORD_SYMLINK);
    break;
  case S_IFIFO:
    put8(RECORD_FIFO);
    break;
  case S_IFSOCK:
    put8(RECORD_SOCKET);
    break;
  default:
    if (type != S_IFCHR || status.st_rdev != makedev(0, 0) || packer->policy != POLICY_DISK)
      stop("unsupported", "%s is a device, which cannot be exported", name);
    put8(RECORD_WHITEOUT);
  }
  put_name(name);
  put_attributes(packer, directory, name, &status, linked ? FLAG_LINKED : 0);
  if (type == S_IFREG) put_content(packer, directory, name, status.st_size);
  if (type == S_IFLNK) put_target(directory, name);
  if (type == S_IFDIR) {
    if (depth >= MAX_DEPTH) stop("unsupported", "directories lie more than %d deep", MAX_DEPTH);
    int inside = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inside < 0) stop_errno("open the directory %s", name);
    pack_directory(packer, inside, depth + 1);
    close(inside);
    put8(RECORD_UP);
  }
}

static void pack_directory(struct packer *packer, int directory, int depth) {
  size_t count;
  char **names = list_names(directory, &count);
  for (size_t index = 0; index < count; index++) {
    pack_entry(packer, directory, names[index], depth);
    free(names[index]);
  }
  free(names);
}

void pack(enum policy policy, const char *path) {
  struct packer *packer = must(calloc(1, sizeof *packer));
  packer->policy = policy;
  packer->copy = must(malloc(COPY_BYTES));
  setvbuf(stdout, NULL, _IOFBF, COPY_BYTES);
  int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat status;
  if (root < 0 || fstat(root, &status) < 0) stop_errno("open %s", path);
  put(MAGIC, MAGIC_LENGTH);
  put8(RECORD_ROOT);
  put_attributes(packer, root, ".", &status, 0);
  pack_directory(packer, root, 0);
  put8(RECORD_END);
  if (measuring && printf("%llu\n", (unsigned long long)measured) < 0) stop_errno("write the size");
  if (fflush(stdout) != 0) stop_errno("write the stream");
}

void measure(enum policy policy, const char *path) {
  measuring = 1;
  pack(policy, path);
}
