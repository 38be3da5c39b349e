#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Paths in the launcher's private mount namespace, on a small filesystem that hides the host's /tmp there. */
static const char *const scratch = "/tmp";
static const char *const image_at = "/tmp/image";
static const char *const disk_at = "/tmp/disk";
const char *const built_root = "/tmp/root";
const char *const built_workspace = "/tmp/workspace";
const char *const built_agent = "/tmp/agent";

static bool idmap(int tree, int userns, uint64_t more) {
  struct mount_attr attributes = {
      .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | more,
      .userns_fd = (uint64_t)userns,
  };
  return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0;
}

/*
 * Files keep their natural owners on disk: id 0 there is root in the sandbox and nobody on the host. Done
 * with the host's privileges, before the trees are attached anywhere, so no process sees them without the map.
 */
bool idmap_trees(const struct trees *trees, int userns, char *reason) {
  if (!idmap(trees->image, userns, MOUNT_ATTR_RDONLY)) return fail(reason, "map the owners of the image");
  if (!idmap(trees->disk, userns, 0)) return fail(reason, "map the owners of the disk");
  if (trees->workspace >= 0 && !idmap(trees->workspace, userns, 0))
    return fail(reason, "map the owners of the workspace directory");
  return true;
}

static bool attach(int tree, const char *at) {
  return mkdir(at, 0755) == 0 && syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

/* Its owner is not mapped, so inside it belongs to nobody and no one may change it; bubblewrap makes it read-only too. */
static bool attach_agent(int tree) {
  int fd = open(built_agent, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  if (fd < 0) return false;
  close(fd);
  return syscall(SYS_move_mount, tree, "", AT_FDCWD, built_agent, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

/*
 * bubblewrap follows symbolic links at the places it mounts on, and a disk is written by whom we isolate. So each of
 * these places has to be a real directory of the root; one that is missing is made.
 */
static bool check_mount_point(int root, const char *name, char *reason) {
  struct open_how how = {
      .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
      .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
  };
  int fd = (int)syscall(SYS_openat2, root, name, &how, sizeof how);
  if (fd < 0 && errno == ENOENT) {
    if (mkdirat(root, name, 0755) < 0) return fail(reason, "make /%s in the sandbox", name);
    return true;
  }
  if (fd < 0) return fail(reason, "/%s of the sandbox has to be a real directory", name);
  close(fd);
  return true;
}

/* Runs as root of the user namespace: an overlay mounted from outside it would come up read-only. */
bool build_root(const struct trees *trees, char *reason) {
  if (mount("coppice", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256k") < 0)
    return fail(reason, "mount a private %s", scratch);
  if (!attach(trees->image, image_at)) return fail(reason, "attach the image");
  if (!attach(trees->disk, disk_at)) return fail(reason, "attach the disk");
  if (trees->workspace >= 0 && !attach(trees->workspace, built_workspace))
    return fail(reason, "attach the workspace directory");
  if (!attach_agent(trees->agent)) return fail(reason, "attach the agent");
  if (mkdir(built_root, 0755) < 0) return fail(reason, "make %s", built_root);
  if (mount("coppice", built_root, "overlay", MS_NODEV,
            "lowerdir=/tmp/image,upperdir=/tmp/disk/upper,workdir=/tmp/disk/work,userxattr") < 0)
    return fail(reason, "mount the overlay of image and disk");

  static const char *const mount_points[] = {"proc", "dev", "sys", "run"};
  int root = open(built_root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return fail(reason, "open the root");
  bool good = true;
  for (size_t index = 0; good && index < sizeof mount_points / sizeof *mount_points; index++)
    good = check_mount_point(root, mount_points[index], reason);
  if (good && trees->workspace >= 0) good = check_mount_point(root, "workspace", reason);
  close(root);
  return good;
}
