#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SUBVOLUME_INODE 256
#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif

static int copy_name(char *target, size_t size, const char *name) {
  if (strlen(name) >= size) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(target, name);
  return 0;
}

static int set_limit(int directory, uint64_t bytes) {
  /* qgroup 0 stands for the one of the subvolume that the file descriptor is in. All ones takes a limit away. */
  struct btrfs_ioctl_qgroup_limit_args args = {0};
  args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
  args.lim.max_rfer = bytes == 0 ? UINT64_MAX : bytes;
  return ioctl(directory, BTRFS_IOC_QGROUP_LIMIT, &args);
}

/* DIR -> "none" | "btrfs" | "subvolume" */
static int probe(struct request *request, struct reply *reply) {
  struct statfs filesystem;
  struct stat status;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = fstatfs(directory, &filesystem) < 0 || fstat(directory, &status) < 0 ? -1 : 0;
  if (result == 0 && (unsigned long)filesystem.f_type != BTRFS_SUPER_MAGIC) reply_text(reply, "none");
  else if (result == 0) reply_text(reply, status.st_ino == SUBVOLUME_INODE ? "subvolume" : "btrfs");
  close(directory);
  return result;
}

static uint64_t subvolume_id(int directory) {
  struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
  return ioctl(directory, BTRFS_IOC_INO_LOOKUP, &args) < 0 ? 0 : args.treeid;
}

/*
 * The limit of a subvolume that is about to be made: bytes that may be written through it; 0: none; - : no quota here. Set in
 * the same step, so that no instant exists in which it is unlimited or has its source's limit.
 */
static int inherit_limit(const char *text, struct btrfs_ioctl_vol_args_v2 *args, struct btrfs_qgroup_inherit *inherit) {
  uint64_t limit;
  if (strcmp(text, "-") == 0) return 0;
  if (parse_number(text, &limit) < 0) return -1;
  inherit->flags = BTRFS_QGROUP_INHERIT_SET_LIMITS;
  inherit->lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
  inherit->lim.max_rfer = limit == 0 ? UINT64_MAX : limit;
  args->flags |= BTRFS_SUBVOL_QGROUP_INHERIT;
  args->size = sizeof *inherit;
  args->qgroup_inherit = inherit;
  return 0;
}

/* Makes the directories of a list like `one/other`. */
static int make_directories(int directory, char *names) {
  char *rest = NULL;
  for (char *name = strtok_r(names, "/", &rest); name != NULL; name = strtok_r(NULL, "/", &rest))
    if (mkdirat(directory, name, 0755) < 0) return -1;
  return 0;
}

/*
 * DIR LIMIT NAMES (directories to be made in it, with slashes between them) AS (its name beside DIR when it is whole)
 * -> its id, which no other ever has
 */
static int create(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_vol_args_v2 args = {0};
  struct btrfs_qgroup_inherit inherit = {0};
  const char *name;
  if (inherit_limit(request->fields[1].data, &args, &inherit) < 0) return fail(reply, "read the limit");
  int parent = open_parent(reply, request->fields[0].data, &name);
  if (parent < 0) return -1;
  int directory = -1, result = copy_name(args.name, sizeof args.name, name);
  if (result == 0) result = ioctl(parent, BTRFS_IOC_SUBVOL_CREATE_V2, &args);
  if (result == 0) result = directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (result >= 0) result = make_directories(directory, request->fields[2].data);
  uint64_t id = result < 0 ? 0 : subvolume_id(directory);
  const char *as = request->fields[3].data;
  if (id != 0 && strcmp(name, as) != 0 && renameat2(parent, name, parent, as, RENAME_NOREPLACE) < 0) id = 0;
  int saved = errno;
  if (directory >= 0) close(directory);
  close(parent);
  errno = saved;
  if (id == 0) return fail(reply, "create the subvolume %s", as);
  reply_number(reply, id);
  return 0;
}

/* SOURCE TARGET ro|rw LIMIT -> the clone's id */
static int snapshot(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_vol_args_v2 args = {0};
  struct btrfs_qgroup_inherit inherit = {0};
  const char *name;
  if (inherit_limit(request->fields[3].data, &args, &inherit) < 0) return fail(reply, "read the limit");
  if (strcmp(request->fields[2].data, "ro") == 0) args.flags |= BTRFS_SUBVOL_RDONLY;
  int source = open_directory(reply, request->fields[0].data);
  if (source < 0) return -1;
  int parent = open_parent(reply, request->fields[1].data, &name);
  if (parent < 0) {
    int saved = errno;
    close(source);
    errno = saved;
    return -1;
  }
  args.fd = source;
  int result = copy_name(args.name, sizeof args.name, name);
  if (result == 0) result = ioctl(parent, BTRFS_IOC_SNAP_CREATE_V2, &args);
  int clone = result < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  uint64_t id = clone < 0 ? 0 : subvolume_id(clone);
  int saved = errno;
  if (clone >= 0) close(clone);
  close(parent);
  close(source);
  errno = saved;
  if (id == 0) return fail(reply, "clone %s to %s", request->fields[0].data, request->fields[1].data);
  reply_number(reply, id);
  return 0;
}

static int delete_at(int parent, const char *name);

/* A subvolume that holds others cannot be deleted: they go first. */
static int delete_nested(int parent, const char *name) {
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return -1;
  struct btrfs_ioctl_get_subvol_rootref_args *children = calloc(1, sizeof *children);
  int result = children == NULL ? -1 : ioctl(directory, BTRFS_IOC_GET_SUBVOL_ROOTREF, children);
  for (int index = 0; result == 0 && index < children->num_items; index++) {
    struct btrfs_ioctl_ino_lookup_user_args where = {
        .dirid = children->rootref[index].dirid,
        .treeid = children->rootref[index].treeid,
    };
    result = ioctl(directory, BTRFS_IOC_INO_LOOKUP_USER, &where);
    if (result < 0) break;
    size_t length = strlen(where.path);
    if (length > 0 && where.path[length - 1] == '/') where.path[length - 1] = 0;
    int holder = open_beneath(directory, where.path, O_RDONLY | O_DIRECTORY);
    result = holder < 0 ? -1 : delete_at(holder, where.name);
    if (holder >= 0) {
      int saved = errno;
      close(holder);
      errno = saved;
    }
  }
  int saved = errno;
  free(children);
  close(directory);
  errno = saved;
  return result;
}

static int delete_at(int parent, const char *name) {
  struct btrfs_ioctl_vol_args args = {0};
  if (copy_name(args.name, sizeof args.name, name) < 0) return -1;
  while (ioctl(parent, BTRFS_IOC_SNAP_DESTROY, &args) < 0) {
    if (errno != ENOTEMPTY || delete_nested(parent, name) < 0) return -1;
  }
  return 0;
}

static int is_subvolume(int parent, const char *name) {
  struct stat status;
  if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
  if (S_ISDIR(status.st_mode) && status.st_ino == SUBVOLUME_INODE) return 1;
  errno = EINVAL;
  return -1;
}

/* A read-only subvolume cannot be moved to another directory. */
static int make_writable(int parent, const char *name) {
  __u64 flags = 0;
  int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return -1;
  int result = ioctl(directory, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
  int saved = errno;
  close(directory);
  errno = saved;
  return result;
}

/*
 * DIR: gone from its name at once; the kernel frees the space in the background. The kernel holds the parent directory
 * while it drops what is cached of the tree, which takes long for a large one: so the tree is deleted from a directory
 * of its own, and whoever makes or removes its neighbours does not wait.
 */
static int delete_subvolume(struct request *request, struct reply *reply) {
  static unsigned long counter;
  char bin_name[64];
  const char *name;
  int parent = open_parent(reply, request->fields[0].data, &name);
  if (parent < 0) return -1;
  snprintf(bin_name, sizeof bin_name, ".bin.%d.%lu", getpid(), __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
  int bin = -1, result = is_subvolume(parent, name) < 0 ? -1 : mkdirat(parent, bin_name, 0700);
  if (result < 0 && errno == ENOSPC) {
    /* Where nothing can be made any more, the kernel keeps room for deletions. */
    result = delete_at(parent, name);
  } else if (result == 0) {
    bin = openat(parent, bin_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    result = bin < 0 ? -1 : renameat(parent, name, bin, "tree");
    if (result < 0 && errno == EROFS && make_writable(parent, name) == 0) result = renameat(parent, name, bin, "tree");
    if (result == 0) result = delete_at(bin, "tree");
    int saved = errno;
    unlinkat(parent, bin_name, AT_REMOVEDIR); /* stays when the deletion failed: the next sweep finds it */
    errno = saved;
  }
  int saved = errno;
  if (bin >= 0) close(bin);
  close(parent);
  errno = saved;
  return result < 0 ? fail(reply, "delete the subvolume %s", request->fields[0].data) : 0;
}

/* DIR ro|rw */
static int set_access(struct request *request, struct reply *reply) {
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  __u64 flags = strcmp(request->fields[1].data, "ro") == 0 ? BTRFS_SUBVOL_RDONLY : 0;
  int result = ioctl(directory, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
  if (result < 0) fail(reply, "set the access of %s", request->fields[0].data);
  close(directory);
  return result;
}

/* DIR BYTES (0: no limit) */
static int limit(struct request *request, struct reply *reply) {
  uint64_t bytes;
  if (parse_number(request->fields[1].data, &bytes) < 0) return fail(reply, "read the limit");
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = set_limit(directory, bytes);
  if (result < 0) fail(reply, "limit the size of %s", request->fields[0].data);
  close(directory);
  return result;
}

/* Finds the first item of a tree at or after (objectid, type, offset) within the type; 1 found, 0 none, -1 error. */
static int search(int directory, uint64_t tree, struct btrfs_ioctl_search_key key, struct btrfs_ioctl_search_args *args) {
  memset(args, 0, sizeof *args);
  key.tree_id = tree;
  key.max_transid = UINT64_MAX;
  key.nr_items = 1;
  args->key = key;
  if (ioctl(directory, BTRFS_IOC_TREE_SEARCH, args) < 0) return -1;
  return args->key.nr_items > 0 ? 1 : 0;
}

/* DIR sync|nosync -> bytes written through it that are still there, limit (0: none), its id, which no other ever has */
static int usage(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_search_args args;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  /* The counts are those of the last commit. */
  int result = strcmp(request->fields[1].data, "sync") == 0 ? syncfs(directory) : 0;
  uint64_t id = result < 0 ? 0 : subvolume_id(directory);
  uint64_t numbers[2] = {0};
  for (int pass = 0; id != 0 && pass < 2; pass++) {
    uint32_t type = pass == 0 ? BTRFS_QGROUP_INFO_KEY : BTRFS_QGROUP_LIMIT_KEY;
    struct btrfs_ioctl_search_key key = {.min_type = type, .max_type = type, .min_offset = id, .max_offset = id};
    int found = search(directory, BTRFS_QUOTA_TREE_OBJECTID, key, &args);
    if (found <= 0) {
      if (found == 0) errno = ENODATA;
      id = 0;
      break;
    }
    const char *item = args.buf + sizeof(struct btrfs_ioctl_search_header);
    if (pass == 0) {
      struct btrfs_qgroup_info_item info;
      memcpy(&info, item, sizeof info);
      numbers[0] = info.rfer;
    } else {
      struct btrfs_qgroup_limit_item info;
      memcpy(&info, item, sizeof info);
      numbers[1] = (info.flags & BTRFS_QGROUP_LIMIT_MAX_RFER) && info.max_rfer != UINT64_MAX ? info.max_rfer : 0;
    }
  }
  int saved = errno;
  close(directory);
  errno = saved;
  if (id == 0) return fail(reply, "measure the subvolume %s", request->fields[0].data);
  reply_number(reply, numbers[0]);
  reply_number(reply, numbers[1]);
  reply_number(reply, id);
  return 0;
}

/* DIR IDS (of subvolumes, with slashes between them) -> for each the bytes written through it that are still there; 0: none, or gone */
static int written(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_search_args args;
  char *rest = NULL;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = 0;
  for (char *text = strtok_r(request->fields[1].data, "/", &rest); result == 0 && text; text = strtok_r(NULL, "/", &rest)) {
    uint64_t id;
    struct btrfs_qgroup_info_item info = {0};
    if ((result = parse_number(text, &id)) < 0) break;
    struct btrfs_ioctl_search_key key = {
        .min_type = BTRFS_QGROUP_INFO_KEY, .max_type = BTRFS_QGROUP_INFO_KEY, .min_offset = id, .max_offset = id};
    int found = search(directory, BTRFS_QUOTA_TREE_OBJECTID, key, &args);
    if (found < 0) result = -1;
    if (found > 0) memcpy(&info, args.buf + sizeof(struct btrfs_ioctl_search_header), sizeof info);
    reply_number(reply, info.rfer);
  }
  int saved = errno;
  close(directory);
  errno = saved;
  return result < 0 ? fail(reply, "read the counts of %s", request->fields[0].data) : 0;
}

/* DIR: from now on each subvolume is counted for what is written through it. EINVAL: the kernel is older than 6.7. */
static int enable_quota(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA};
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = ioctl(directory, BTRFS_IOC_QUOTA_CTL, &args);
  if (result < 0) fail(reply, "enable quotas on %s", request->fields[0].data);
  close(directory);
  return result;
}

/* DIR -> how many counters of subvolumes that no longer exist were removed (older kernels leave them behind) */
static int sweep_quota(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_search_args args;
  uint64_t removed = 0, next = BTRFS_FIRST_FREE_OBJECTID;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = 0;
  while (result == 0) {
    struct btrfs_ioctl_search_key key = {
        .min_type = BTRFS_QGROUP_INFO_KEY, .max_type = BTRFS_QGROUP_INFO_KEY, .min_offset = next, .max_offset = (1ULL << 48) - 1};
    int found = search(directory, BTRFS_QUOTA_TREE_OBJECTID, key, &args);
    if (found <= 0) {
      result = found;
      break;
    }
    struct btrfs_ioctl_search_header header;
    memcpy(&header, args.buf, sizeof header);
    uint64_t id = header.offset;
    next = id + 1;
    struct btrfs_ioctl_search_key root = {
        .min_objectid = id, .max_objectid = id, .min_type = BTRFS_ROOT_ITEM_KEY, .max_type = BTRFS_ROOT_ITEM_KEY, .max_offset = UINT64_MAX};
    found = search(directory, BTRFS_ROOT_TREE_OBJECTID, root, &args);
    if (found < 0) result = -1;
    if (found != 0) continue;
    struct btrfs_ioctl_qgroup_create_args destroy = {.create = 0, .qgroupid = id};
    if (ioctl(directory, BTRFS_IOC_QGROUP_CREATE, &destroy) == 0) removed++;
    /* Busy: what it wrote lives on in a snapshot. */
    else if (errno != ENOENT && errno != EBUSY) result = -1;
  }
  int saved = errno;
  close(directory);
  errno = saved;
  if (result < 0) return fail(reply, "remove stale quotas of %s", request->fields[0].data);
  reply_number(reply, removed);
  return 0;
}

/* DIR: all that was written before is on the disk when it returns. */
static int sync_filesystem(struct request *request, struct reply *reply) {
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = syncfs(directory);
  if (result < 0) fail(reply, "sync %s", request->fields[0].data);
  close(directory);
  return result;
}

/*
 * DIR: what was made, renamed and removed before is so after a loss of power too. Contents that programs are still to write back are not
 * waited for: there may be any amount of them, of anybody.
 */
static int commit_filesystem(struct request *request, struct reply *reply) {
  __u64 transaction = 0;
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = ioctl(directory, BTRFS_IOC_START_SYNC, &transaction);
  if (result == 0) result = ioctl(directory, BTRFS_IOC_WAIT_SYNC, &transaction);
  if (result < 0) fail(reply, "commit %s", request->fields[0].data);
  close(directory);
  return result;
}

/* DIR -> the filesystem's id, as in /sys/fs/btrfs/<id> */
static int identify(struct request *request, struct reply *reply) {
  struct btrfs_ioctl_fs_info_args args = {0};
  int directory = open_directory(reply, request->fields[0].data);
  if (directory < 0) return -1;
  int result = ioctl(directory, BTRFS_IOC_FS_INFO, &args);
  if (result < 0) fail(reply, "ask for the id of the filesystem at %s", request->fields[0].data);
  else reply_bytes(reply, args.fsid, sizeof args.fsid);
  close(directory);
  return result;
}

const struct operation_entry btrfs_operations[] = {
    {"probe", 1, probe},
    {"subvolume-create", 4, create},
    {"subvolume-snapshot", 4, snapshot},
    {"subvolume-delete", 1, delete_subvolume},
    {"subvolume-access", 2, set_access},
    {"subvolume-usage", 2, usage},
    {"quota-limit", 2, limit},
    {"quota-written", 2, written},
    {"quota-enable", 1, enable_quota},
    {"quota-sweep", 1, sweep_quota},
    {"filesystem-sync", 1, sync_filesystem},
    {"filesystem-commit", 1, commit_filesystem},
    {"filesystem-id", 1, identify},
    {NULL, 0, NULL},
};
