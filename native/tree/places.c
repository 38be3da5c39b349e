#define _GNU_SOURCE
#include "places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XFS_MAGIC 0x58465342
#define FUSE_MAGIC 0x65735546
#define SUBVOLUME_ROOT_INO 256

const char *filesystem_name(const char *path) {
  struct statfs fs;
  if (statfs(path, &fs) != 0) die_errno("look at the filesystem of", path);
  switch ((uint32_t)fs.f_type) {
  case BTRFS_SUPER_MAGIC:
    return "btrfs";
  case XFS_MAGIC:
    return "xfs";
  case EXT4_SUPER_MAGIC:
    return "ext4";
  case TMPFS_MAGIC:
    return "tmpfs";
  case OVERLAYFS_SUPER_MAGIC:
    return "overlay";
  case NFS_SUPER_MAGIC:
    return "nfs";
  case FUSE_MAGIC:
    return "fuse";
  default:
    return "other";
  }
}

bool can_reflink(const char *directory) {
  char from[4200], to[4200];
  snprintf(from, sizeof from, "%s/probe-%d-a", directory, getpid());
  snprintf(to, sizeof to, "%s/probe-%d-b", directory, getpid());
  const int a = open(from, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const int b = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool works = false;
  if (a >= 0 && b >= 0) {
    char page[4096];
    memset(page, 'x', sizeof page);
    works = write(a, page, sizeof page) == (ssize_t)sizeof page && ioctl(b, FICLONE, a) == 0;
  }
  if (a >= 0) close(a), unlink(from);
  if (b >= 0) close(b), unlink(to);
  return works;
}

bool is_subvolume(const char *path) {
  struct stat stat;
  return lstat(path, &stat) == 0 && S_ISDIR(stat.st_mode) && stat.st_ino == SUBVOLUME_ROOT_INO &&
         strcmp(filesystem_name(path), "btrfs") == 0;
}

void sync_filesystem(const char *directory) {
  const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || syncfs(fd) != 0) die_errno("sync", directory);
  close(fd);
}

/* The directory that holds `path`, opened; the last name goes to `name`. */
static int open_parent(const char *path, char name[BTRFS_PATH_NAME_MAX + 1]) {
  char *copy = must_strdup(path);
  const char *last = basename(copy);
  if (strlen(last) > 255) die("invalid_argument", "the name is too long: %s", last);
  strcpy(name, last);
  free(copy);
  copy = must_strdup(path);
  const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) die_errno("open the directory of", path);
  free(copy);
  return fd;
}

void subvolume_create(const char *path) {
  struct btrfs_ioctl_vol_args args = {0};
  const int parent = open_parent(path, args.name);
  if (ioctl(parent, BTRFS_IOC_SUBVOL_CREATE, &args) != 0) die_errno("create the subvolume", path);
  close(parent);
}

void subvolume_snapshot(const char *from, const char *to, bool read_only) {
  struct btrfs_ioctl_vol_args_v2 args = {0};
  char name[BTRFS_PATH_NAME_MAX + 1];
  const int parent = open_parent(to, name);
  strcpy(args.name, name);
  args.fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (args.fd < 0) die_errno("open", from);
  if (read_only) args.flags = BTRFS_SUBVOL_RDONLY;
  if (ioctl(parent, BTRFS_IOC_SNAP_CREATE_V2, &args) != 0) die_errno("snapshot the subvolume", from);
  close((int)args.fd);
  close(parent);
}

/* Root destroys a subvolume in one call. Its owner can only make it writable, empty it and remove it as a directory: then this is false. */
static bool destroy_subvolume(int parent, const char *name, int fd) {
  struct btrfs_ioctl_vol_args args = {0};
  uint64_t flags = 0;
  strncpy(args.name, name, sizeof args.name - 1);
  if (ioctl(parent, BTRFS_IOC_SNAP_DESTROY, &args) == 0) return true;
  if (ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags) != 0) die_errno("remove the subvolume", name);
  return false;
}

static bool is_subvolume_fd(int fd) {
  struct stat stat;
  struct statfs fs;
  return fstat(fd, &stat) == 0 && stat.st_ino == SUBVOLUME_ROOT_INO && fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == BTRFS_SUPER_MAGIC;
}

static void empty_directory(int fd, const char *path) {
  DIR *dir = fdopendir(fd);
  if (!dir) die_errno("list", path);
  for (struct dirent *entry; (entry = readdir(dir));) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM && errno != EROFS) die_errno("remove", name);
    int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (child < 0 && errno == EACCES && fchmodat(fd, name, 0700, 0) == 0)
      child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (child < 0) die_errno("remove", name);
    if (is_subvolume_fd(child) && destroy_subvolume(fd, name, child)) {
      close(child);
      continue;
    }
    (void)fchmod(child, 0700);
    empty_directory(child, name);
    if (unlinkat(fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) die_errno("remove", name);
  }
  closedir(dir);
}

void remove_tree(const char *path) {
  struct stat stat;
  if (lstat(path, &stat) != 0) {
    if (errno == ENOENT) return;
    die_errno("remove", path);
  }
  if (!S_ISDIR(stat.st_mode)) {
    if (unlink(path) != 0) die_errno("remove", path);
    return;
  }
  if (is_subvolume(path)) {
    char name[BTRFS_PATH_NAME_MAX + 1];
    const int parent = open_parent(path, name), fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) die_errno("remove the subvolume", path);
    const bool destroyed = destroy_subvolume(parent, name, fd);
    close(parent);
    close(fd);
    if (destroyed) return;
  }
  (void)chmod(path, 0700);
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) die_errno("remove", path);
  empty_directory(fd, path);
  if (rmdir(path) != 0) die_errno("remove", path);
}

/* The time of the directory that holds `path`; false: it cannot be told. */
static bool time_above(const char *path, char folder[PATH_MAX], struct timespec times[2]) {
  struct stat found;
  const char *slash = strrchr(path, '/');
  if (!slash || slash - path >= PATH_MAX) return false;
  memcpy(folder, path, (size_t)(slash - path));
  folder[slash - path] = 0;
  if (stat(folder, &found) != 0) return false;
  times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
  times[1] = found.st_mtim;
  return true;
}

void remove_unseen(const char *path) {
  char folder[PATH_MAX];
  struct timespec times[2];
  const bool known = access(path, F_OK) == 0 && time_above(path, folder, times);
  remove_tree(path);
  /* Only the owner of that directory may set its time. */
  if (known && utimensat(AT_FDCWD, folder, times, 0) != 0) errno = 0;
}

bool make_unseen(const char *path) {
  char folder[PATH_MAX];
  struct timespec times[2];
  if (!time_above(path, folder, times) || mkdir(path, 0700) != 0) return false;
  if (utimensat(AT_FDCWD, folder, times, 0) == 0) return true;
  rmdir(path);
  return false;
}

void copy_file(const char *from, const char *to) {
  const int in = open(from, O_RDONLY | O_CLOEXEC);
  if (in < 0) die_errno("open", from);
  if (unlink(to) != 0 && errno != ENOENT) die_errno("replace", to);
  const int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (out < 0) die_errno("create", to);
  ssize_t copied = 0;
  if (ioctl(out, FICLONE, in) != 0)
    while ((copied = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) > 0);
  if (copied < 0) die_errno("write", to);
  close(in);
  close(out);
}

static void write_zeros(int fd, uint64_t offset, uint64_t len, const char *path) {
  static const uint8_t zeros[4096];
  while (len) {
    const ssize_t wrote = pwrite(fd, zeros, len < sizeof zeros ? (size_t)len : sizeof zeros, (off_t)offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) die_errno("write", path);
    offset += (uint64_t)wrote;
    len -= (uint64_t)wrote;
  }
}

void punch(const char *path, uint64_t offset, uint64_t len, bool erase) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) die_errno("open", path);
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len) != 0) {
    if (errno != EOPNOTSUPP) die_errno("free a part of", path);
    if (erase) write_zeros(fd, offset, len, path);
  }
  close(fd);
}
