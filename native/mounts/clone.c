#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../place/place.h"
#include "mounts.h"
#include "owners.h"

/*
 * Inode and time of birth tell one directory from all others that ever were. The device is the same until the machine is
 * started anew, and then it may have another number; so it counts only where the filesystem notes no time of birth.
 */
static bool is_same(int fd, const char *identity) {
  struct statx found;
  unsigned long long device, inode;
  long long birth;
  if (sscanf(identity, "%llu:%llu:%lld", &device, &inode, &birth) != 3) return false;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) < 0 || found.stx_ino != inode) return false;
  long long found_birth = found.stx_btime.tv_sec * 1000000000LL + found.stx_btime.tv_nsec;
  if (birth != 0) return found_birth == birth;
  return makedev(found.stx_dev_major, found.stx_dev_minor) == device;
}

static void say(char *trouble, const char *word, size_t number, const char *what) {
  snprintf(trouble, mount_trouble_limit, "%s %zu: %s", word, number, what);
}

static const char *change_of(int number) {
  switch (number) {
  case ELOOP:
    return "there is a symbolic link on its path now";
  case ENOENT:
    return "it is gone";
  case ENOTDIR:
    return "something else than a directory stands there now";
  default:
    return NULL;
  }
}

/* Whoever may rename above it can put something else there at any moment, so it is looked at only once it is open. */
static int open_directory(const struct host_mount *mount, size_t number, char *trouble) {
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, mount->host, &how, sizeof how);
  const char *change = fd < 0 ? change_of(errno) : NULL;
  if (fd >= 0 && mount->identity[0] != '\0' && !is_same(fd, mount->identity)) {
    change = "another directory stands there now";
    close(fd);
    fd = -1;
  }
  if (change) say(trouble, MOUNT_CHANGED, number, change);
  return fd;
}

/* An overlay is what the sandbox's own root is: by that its files are told from those of the host. */
static bool is_usable(int directory, size_t number, char *trouble) {
  struct statfs filesystem;
  if (fstatfs(directory, &filesystem) == 0 && (unsigned long)filesystem.f_type != OVERLAYFS_SUPER_MAGIC) return true;
  say(trouble, MOUNT_UNUSABLE, number, "it lies on an overlay, whose owners cannot be mapped");
  return false;
}

static bool map_owners(int tree, const struct stat *directory, uid_t first_id, bool read_only) {
  int map = make_owner_map(directory->st_uid, directory->st_gid, first_id);
  struct mount_attr attributes = {
      .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | (read_only ? MOUNT_ATTR_RDONLY : 0),
      .attr_clr = MOUNT_ATTR__ATIME,
      .userns_fd = (__u64)map,
  };
  bool mapped = map >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0;
  int number = errno;
  if (map >= 0) close(map);
  errno = map < 0 && number == EINVAL ? EIO : number;
  return mapped;
}

int clone_mount(const struct host_mount *mount, size_t number, uid_t first_id, char *trouble) {
  struct stat found;
  trouble[0] = '\0';
  int directory = open_directory(mount, number, trouble);
  if (directory < 0) return -1;
  int tree = -1;
  if (is_usable(directory, number, trouble) && fstat(directory, &found) == 0)
    tree = (int)syscall(SYS_open_tree, directory, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  bool mapped = tree >= 0 && map_owners(tree, &found, first_id, mount->read_only);
  int why = errno;
  if (tree >= 0 && !mapped) {
    if (why == EINVAL) say(trouble, MOUNT_UNUSABLE, number, "the owners of its filesystem cannot be mapped");
    close(tree);
    tree = -1;
  }
  close(directory);
  errno = why;
  return tree;
}

int open_mount_place(int root, const struct host_mount *mount, size_t number, char *trouble) {
  trouble[0] = '\0';
  int place = open_place(root, mount->guest + 1, place_directory, 0755);
  if (place < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EXDEV))
    say(trouble, MOUNT_BLOCKED, number, "a part of its path inside is no directory but a link or a file");
  return place;
}
