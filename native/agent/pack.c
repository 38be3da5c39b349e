/* A tree as a tar stream: ustar, with pax headers where a field does not fit. Sockets and devices are left out, as no other
   place could make use of them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent.h"
#include "../lib/tar.h"
#include "tree.h"

/* The first path of each file that has several. */
struct first_link {
  dev_t device;
  ino_t inode;
  char *path;
};

struct packing {
  const char *path;
  struct first_link *links;
  size_t link_count;
  size_t link_capacity;
};

static size_t link_slot(const struct packing *p, const struct stat *st) {
  size_t at = ((size_t)st->st_ino * 2654435761u ^ (size_t)st->st_dev) & (p->link_capacity - 1);
  while (p->links[at].path != NULL && (p->links[at].inode != st->st_ino || p->links[at].device != st->st_dev))
    at = (at + 1) & (p->link_capacity - 1);
  return at;
}

/* The path under which the same file has been packed; otherwise remembers this one. */
static const char *seen_before(struct packing *p, const struct stat *st, const char *path) {
  if (p->link_count * 2 >= p->link_capacity) {
    struct first_link *old = p->links;
    size_t old_capacity = p->link_capacity;
    p->link_capacity = old_capacity == 0 ? 256 : old_capacity * 2;
    p->links = must_alloc(p->link_capacity * sizeof *p->links);
    for (size_t i = 0; i < old_capacity; i++) {
      if (old[i].path == NULL) continue;
      struct stat key = {.st_ino = old[i].inode, .st_dev = old[i].device};
      p->links[link_slot(p, &key)] = old[i];
    }
    free(old);
  }
  struct first_link *link = &p->links[link_slot(p, st)];
  if (link->path != NULL) return link->path;
  *link = (struct first_link){st->st_dev, st->st_ino, must_copy(path)};
  p->link_count++;
  return NULL;
}

static void put_octal(char *field, size_t size, uint64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%0*llo", (int)size - 1, (unsigned long long)value);
  memcpy(field, digits, size - 1);
}

static bool fits_octal(uint64_t value, size_t size) { return value >> (3 * (size - 1)) == 0; }

static void write_padding(uint64_t length) {
  static const uint8_t zeros[TAR_BLOCK];
  size_t rest = (size_t)(length % TAR_BLOCK);
  if (rest > 0) worker_write(zeros, TAR_BLOCK - rest);
}

static void finish_header(struct tar_header *header) {
  tar_seal(header);
  worker_write(header, TAR_BLOCK);
}

/* One record of a pax header: its length counts itself. */
static void put_record(struct buffer *b, const char *key, const char *value) {
  size_t rest = strlen(key) + strlen(value) + 3;
  size_t length = rest + 1;
  char digits[24];
  while ((size_t)snprintf(digits, sizeof digits, "%zu", length) + rest != length)
    length = rest + (size_t)snprintf(digits, sizeof digits, "%zu", length);
  put_bytes(b, digits, strlen(digits));
  put_bytes(b, " ", 1);
  put_bytes(b, key, strlen(key));
  put_bytes(b, "=", 1);
  put_bytes(b, value, strlen(value));
  put_bytes(b, "\n", 1);
}

static void put_number_record(struct buffer *b, const char *key, uint64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  put_record(b, key, digits);
}

/* Splits a path over the two fields of ustar; false when it does not fit or is not plain ASCII. */
static bool put_name(struct tar_header *header, const char *path) {
  size_t length = strlen(path);
  for (const char *at = path; *at != 0; at++)
    if ((unsigned char)*at >= 0x80) return false;
  if (length <= sizeof header->name) {
    memcpy(header->name, path, length);
    return true;
  }
  for (const char *slash = path; (slash = strchr(slash, '/')) != NULL; slash++) {
    size_t prefix = (size_t)(slash - path), rest = length - prefix - 1;
    if (prefix > 0 && prefix <= sizeof header->prefix && rest > 0 && rest <= sizeof header->name) {
      memcpy(header->prefix, path, prefix);
      memcpy(header->name, slash + 1, rest);
      return true;
    }
  }
  return false;
}

static bool put_link(struct tar_header *header, const char *target) {
  size_t length = strlen(target);
  for (const char *at = target; *at != 0; at++)
    if ((unsigned char)*at >= 0x80) return false;
  if (length > sizeof header->link) return false;
  memcpy(header->link, target, length);
  return true;
}

static void write_entry_header(const struct stat *st, const char *path, char type, uint64_t size, const char *target) {
  struct tar_header header = {.type = type};
  struct buffer pax = {0};
  uint64_t mtime = st->st_mtime < 0 ? 0 : (uint64_t)st->st_mtime;
  if (!put_name(&header, path)) {
    put_record(&pax, "path", path);
    memcpy(header.name, "pax-entry", 9);
  }
  if (target != NULL && !put_link(&header, target)) put_record(&pax, "linkpath", target);
  if (!fits_octal(size, sizeof header.size)) put_number_record(&pax, "size", size);
  if (!fits_octal(st->st_uid, sizeof header.uid)) put_number_record(&pax, "uid", st->st_uid);
  if (!fits_octal(st->st_gid, sizeof header.gid)) put_number_record(&pax, "gid", st->st_gid);
  if (!fits_octal(mtime, sizeof header.mtime)) put_number_record(&pax, "mtime", mtime);
  if (pax.length > 0) {
    struct tar_header extension = {.type = 'x'};
    memcpy(extension.name, "PaxHeaders/entry", 16);
    put_octal(extension.mode, sizeof extension.mode, 0644);
    put_octal(extension.uid, sizeof extension.uid, 0);
    put_octal(extension.gid, sizeof extension.gid, 0);
    put_octal(extension.size, sizeof extension.size, pax.length);
    put_octal(extension.mtime, sizeof extension.mtime, 0);
    finish_header(&extension);
    worker_write(pax.bytes, pax.length);
    write_padding(pax.length);
    buffer_free(&pax);
  }
  put_octal(header.mode, sizeof header.mode, st->st_mode & 07777);
  put_octal(header.uid, sizeof header.uid, fits_octal(st->st_uid, sizeof header.uid) ? st->st_uid : 0);
  put_octal(header.gid, sizeof header.gid, fits_octal(st->st_gid, sizeof header.gid) ? st->st_gid : 0);
  put_octal(header.size, sizeof header.size, fits_octal(size, sizeof header.size) ? size : 0);
  put_octal(header.mtime, sizeof header.mtime, fits_octal(mtime, sizeof header.mtime) ? mtime : 0);
  finish_header(&header);
}

/* As many bytes as the header promised, whatever happens to the file meanwhile. */
static void write_content(int fd, uint64_t size, const char *path) {
  static uint8_t chunk[65536];
  for (uint64_t left = size; left > 0;) {
    size_t wanted = left < sizeof chunk ? (size_t)left : sizeof chunk;
    ssize_t n = read(fd, chunk, wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) worker_fail_errno(errno_of_read(fd, errno), "cannot read %.1024s", path);
    if (n == 0) {
      memset(chunk, 0, wanted);
      n = (ssize_t)wanted;
    }
    worker_write(chunk, (size_t)n);
    left -= (uint64_t)n;
  }
  write_padding(size);
}

/* Its room on the stack must not be part of the walk, which is as deep as the tree. */
static __attribute__((noinline)) void pack_symlink(int parent, const char *name, const char *path, const struct stat *st) {
  char target[PATH_MAX];
  ssize_t n = readlinkat(parent, name, target, sizeof target - 1);
  if (n < 0) worker_fail_errno(errno, "cannot read the link %.1024s", path);
  target[n] = 0;
  write_entry_header(st, path, '2', 0, target);
}

static void pack_directory(struct packing *p, int fd, const char *path);

/* What the kernel shows as files is no content of the sandbox: its files have no size, change while they are read, or cannot be. */
static bool is_of_kernel(int parent, int fd) {
  static const unsigned long kinds[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEVPTS_SUPER_MAGIC};
  struct stat above, here;
  struct statfs filesystem;
  if (fstat(parent, &above) < 0 || fstat(fd, &here) < 0 || above.st_dev == here.st_dev || fstatfs(fd, &filesystem) < 0) return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if ((unsigned long)filesystem.f_type == kinds[i]) return true;
  return false;
}

static void pack_entry(struct packing *p, int parent, const char *name, const char *path) {
  struct stat st;
  if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno == ENOENT) return; /* Removed meanwhile. */
    worker_fail_errno(errno, "cannot look at %.1024s", path);
  }
  if (S_ISDIR(st.st_mode)) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) worker_fail_errno(errno, "cannot open %.1024s", path);
    char *shown = must_alloc(strlen(path) + 2);
    sprintf(shown, "%s/", path);
    write_entry_header(&st, shown, '5', 0, NULL);
    free(shown);
    if (!is_of_kernel(parent, fd)) pack_directory(p, fd, path);
    close(fd);
    return;
  }
  if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !S_ISFIFO(st.st_mode)) return;
  const char *first = st.st_nlink > 1 ? seen_before(p, &st, path) : NULL;
  if (first != NULL) {
    write_entry_header(&st, path, '1', 0, first);
  } else if (S_ISLNK(st.st_mode)) {
    pack_symlink(parent, name, path, &st);
  } else if (S_ISFIFO(st.st_mode)) {
    write_entry_header(&st, path, '6', 0, NULL);
  } else {
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) worker_fail_errno(errno, "cannot open %.1024s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) worker_fail("conflict", 0, "%.1024s changed while it was read", path);
    write_entry_header(&st, path, '0', (uint64_t)st.st_size, NULL);
    write_content(fd, (uint64_t)st.st_size, path);
    close(fd);
  }
}

static void pack_directory(struct packing *p, int fd, const char *path) {
  size_t count;
  char **names = directory_names(fd, &count);
  if (names == NULL) worker_fail_errno(errno, "cannot list %.1024s", path);
  for (size_t i = 0; i < count; i++) {
    char *child = *path == 0 ? must_copy(names[i]) : join_path(path, names[i]);
    pack_entry(p, fd, names[i], child);
    free(child);
  }
  free_names(names, count);
}

static void pack_worker(void *argument) {
  struct packing *p = argument;
  static const uint8_t end[2 * TAR_BLOCK];
  struct stat st;
  if (stat(p->path, &st) < 0) worker_fail_errno(errno, "cannot pack %.1024s", p->path);
  if (S_ISDIR(st.st_mode)) {
    int fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) worker_fail_errno(errno, "cannot pack %.1024s", p->path);
    pack_directory(p, fd, "");
  } else if (S_ISREG(st.st_mode)) {
    const char *name = strrchr(p->path, '/') + 1;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) worker_fail_errno(errno, "cannot pack %.1024s", p->path);
    write_entry_header(&st, name, '0', (uint64_t)st.st_size, NULL);
    write_content(fd, (uint64_t)st.st_size, p->path);
  } else {
    worker_fail("invalid_argument", EINVAL, "%.1024s is neither a directory nor a regular file", p->path);
  }
  worker_write(end, sizeof end);
  worker_done(NULL);
}

void tree_pack(struct channel *channel, struct reader *body) {
  struct packing p = {.path = read_string(body)};
  if (!read_finished(body)) {
    channel_fail(channel, "invalid_argument", EINVAL, "the request to pack is malformed");
    return;
  }
  if (path_is_absolute(channel, p.path)) worker_open(channel, pack_worker, &p, false);
}
