#define _GNU_SOURCE
#include "stuck.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"
#include "common.h"

static void refuse_fixed(const struct statx *found, const char *what, const char *path) {
  const bool immutable = found->stx_attributes & STATX_ATTR_IMMUTABLE, append = found->stx_attributes & STATX_ATTR_APPEND;
  if (immutable || append)
    die("forbidden", "cannot change %s: %s is %s (`chattr -%c` undoes that)", path, what, immutable ? "immutable" : "append-only",
        immutable ? 'i' : 'a');
}

static uint64_t root_mount;

void stuck_below(int root) {
  struct statx found;
  root_mount = statx(root, "", AT_EMPTY_PATH, STATX_MNT_ID, &found) == 0 && found.stx_mask & STATX_MNT_ID ? found.stx_mnt_id : 0;
}

static void refuse_mount(const struct statx *found, const char *path) {
  if (root_mount && found->stx_mask & STATX_MNT_ID && found->stx_mnt_id != root_mount)
    die("in_use", "cannot change %s: something is mounted there (unmount it first, or name it in .jvsignore)", path);
}

void refuse_stuck(int root, const char *path) {
  const char *name;
  const int parent = parent_below(root, path, &name);
  if (parent < 0) return; /* It is made by this restore too. */
  struct statx found;
  if (statx(parent, "", AT_EMPTY_PATH, STATX_UID | STATX_MNT_ID, &found) == 0) {
    refuse_mount(&found, path);
    refuse_fixed(&found, "its directory", path);
    /* What is ours is made writable on the way. */
    if (geteuid() != 0 && found.stx_uid != geteuid() && faccessat(parent, ".", W_OK | X_OK, AT_EACCESS) != 0) die_errno("change", path);
  }
  if (statx(parent, name, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &found) == 0) {
    refuse_mount(&found, path);
    refuse_fixed(&found, "it", path);
  }
  close(parent);
}
