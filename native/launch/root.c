#define _GNU_SOURCE
#include "launch.h"

#include "../place/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool idmap_tree(int tree, int userns, uint64_t more) {
  struct mount_attr attributes = {
      .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | more,
      .attr_clr = MOUNT_ATTR__ATIME,
      .userns_fd = (__u64)userns,
  };
  return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0;
}

/*
 * Files keep their natural owners on disk: id 0 there is root in the sandbox and nobody on the host. Done
 * with the host's privileges, before the trees are attached anywhere, so no process sees them without the map. How times of
 * reading are kept is the same for all, wherever they come from: in a checkpoint it is what the mount must have again.
 */
bool idmap_trees(const struct trees *trees, int userns, char *reason) {
  if (!idmap_tree(trees->image, userns, MOUNT_ATTR_RDONLY)) return fail(reason, "map the owners of the image");
  if (!idmap_tree(trees->disk, userns, 0)) return fail(reason, "map the owners of the disk");
  /* The agent's owner is left unmapped: inside it belongs to nobody, and no one may change it. */
  struct mount_attr sealed = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, .attr_clr = MOUNT_ATTR__ATIME};
  return syscall(SYS_mount_setattr, trees->agent, "", AT_EMPTY_PATH, &sealed, sizeof sealed) == 0 ||
         fail(reason, "make the agent read-only");
}

static bool attach(int tree, const char *at) { return syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) == 0; }

/* A mount follows symbolic links to its place, so each place is made a real directory of the root first. */
static bool prepare_places(int root, char *reason) {
  static const char *const names[] = {"proc", "dev", "sys", "run"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
    int place = open_place(root, names[index], place_directory, 0755);
    if (place < 0) return fail(reason, "make /%s of the sandbox a directory", names[index]);
    close(place);
  }
  return true;
}

static bool attach_mount(int root, const struct trees *trees, size_t number, char *reason) {
  char trouble[mount_trouble_limit];
  const struct host_mount *mount = &trees->mounts[number];
  int place = open_mount_place(root, mount, number, trouble);
  if (place < 0 && trouble[0]) errno = 0;
  if (place < 0) return trouble[0] ? fail(reason, "%s", trouble) : fail(reason, "make %s of the sandbox a directory", mount->guest);
  bool attached =
      syscall(SYS_move_mount, trees->mount_trees[number], "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
  if (!attached) fail(reason, "mount %s at %s", mount->host, mount->guest);
  close(place);
  return attached;
}

static bool attach_mounts(int root, const struct trees *trees, char *reason) {
  for (size_t number = 0; number < trees->mount_count; number++)
    if (!attach_mount(root, trees, number, reason)) return false;
  return true;
}

/*
 * The overlay of all layers of the image and the disk. A mount has a page for its options, and an image may have more than a
 * hundred layers: so their names begin at what holds them.
 */
static bool mount_overlay(const struct message *request, char *reason) {
  static const char plain[] = "lowerdir=image,upperdir=disk/upper,workdir=disk/work,userxattr";
  static const char rest[] = ",upperdir=../disk/upper,workdir=../disk/work,userxattr";
  char options[4096] = "lowerdir=";
  const char *at = NULL, *layer = message_next(request, "layer", &at);
  if (!layer)
    return mount("coppice", "root", "overlay", MS_NODEV | MS_NOSUID, plain) == 0 || fail(reason, "mount the overlay of image and disk");
  size_t length = strlen(options);
  for (bool first = true; layer; layer = message_next(request, "layer", &at), first = false) {
    if (strpbrk(layer, ":,\\") || length + strlen(layer) + 1 + sizeof rest > sizeof options) {
      errno = EINVAL;
      return fail(reason, "mount all layers of the image");
    }
    length += (size_t)sprintf(options + length, "%s%s", first ? "" : ":", layer);
  }
  strcpy(options + length, rest);
  return (chdir("image") == 0 && mount("coppice", "../root", "overlay", MS_NODEV | MS_NOSUID, options) == 0 && chdir("..") == 0) ||
         fail(reason, "mount the overlay of image and disk");
}

/* Runs as root of the user namespace: an overlay mounted from outside it would come up read-only. */
bool build_root(const char *scratch, const struct trees *trees, const struct message *request, char *reason) {
  /* On a small filesystem in the launcher's private mounts, which hides what the host has there. */
  if (mount("coppice", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256k") < 0 || chdir(scratch) < 0)
    return fail(reason, "mount a private %s", scratch);
  if (mkdir("image", 0755) < 0 || mkdir("disk", 0755) < 0 || mkdir("root", 0755) < 0)
    return fail(reason, "make the places below %s", scratch);
  if (!attach(trees->image, "image")) return fail(reason, "attach the image");
  if (!attach(trees->disk, "disk")) return fail(reason, "attach the disk");
  if (!mount_overlay(request, reason)) return false;

  int root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return fail(reason, "open the root");
  bool good = prepare_places(root, reason) && attach_mounts(root, trees, reason);
  close(root);
  if (!good) return false;
  return furnish_root("root", trees->agent, request, reason);
}
