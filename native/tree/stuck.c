#define _GNU_SOURCE
#include "stuck.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

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

void refuse_stuck_directory(int dir, const char *path) {
  struct statx found;
  if (statx(dir, "", AT_EMPTY_PATH, STATX_UID | STATX_MNT_ID, &found) != 0) return;
  refuse_mount(&found, path);
  refuse_fixed(&found, "its directory", path);
  /* A restore makes directories of its own user writable. */
  if (geteuid() != 0 && found.stx_uid != geteuid() && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) != 0) die_errno("change", path);
}

void refuse_stuck_entry(int dir, const char *name, const char *path) {
  struct statx found;
  if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &found) != 0) return;
  refuse_mount(&found, path);
  refuse_fixed(&found, "it", path);
}
