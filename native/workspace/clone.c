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

#include "owners.h"
#include "workspace.h"

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
static int open_directory(const struct workspace *workspace, char *trouble) {
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, workspace->path, &how, sizeof how);
  const char *change = fd < 0 ? change_of(errno) : NULL;
  if (fd >= 0 && workspace->identity && !is_same(fd, workspace->identity)) {
    change = "another directory stands there now";
    close(fd);
    fd = -1;
  }
  if (change) snprintf(trouble, workspace_trouble_limit, WORKSPACE_CHANGED "%s", change);
  return fd;
}

/* An overlay is what the sandbox's own root is: by that its files are told from those of the host. */
static bool is_usable(int directory, char *trouble) {
  struct statfs filesystem;
  if (fstatfs(directory, &filesystem) == 0 && (unsigned long)filesystem.f_type != OVERLAYFS_SUPER_MAGIC) return true;
  snprintf(trouble, workspace_trouble_limit, WORKSPACE_UNUSABLE "it lies on an overlay, whose owners cannot be mapped");
  return false;
}

static bool map_owners(int tree, const struct stat *directory, uid_t first_id, char *trouble) {
  int map = make_owner_map(directory->st_uid, directory->st_gid, first_id);
  struct mount_attr attributes = {
      .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID,
      .attr_clr = MOUNT_ATTR__ATIME,
      .userns_fd = (__u64)map,
  };
  bool mapped = map >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0;
  if (map >= 0 && !mapped && errno == EINVAL)
    snprintf(trouble, workspace_trouble_limit, WORKSPACE_UNUSABLE "the owners of its filesystem cannot be mapped");
  int number = errno;
  if (map >= 0) close(map);
  errno = number;
  return mapped;
}

int clone_workspace(const struct workspace *workspace, char *trouble) {
  struct stat found;
  trouble[0] = '\0';
  int directory = open_directory(workspace, trouble);
  if (directory < 0) return -1;
  int tree = -1;
  if (is_usable(directory, trouble) && fstat(directory, &found) == 0)
    tree = (int)syscall(SYS_open_tree, directory, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (tree >= 0 && !map_owners(tree, &found, workspace->first_id, trouble)) {
    int number = errno;
    close(tree);
    errno = number;
    tree = -1;
  }
  int number = errno;
  close(directory);
  errno = number;
  return tree;
}
