/*
 * Directories of the host that are mounted in a sandbox. There the sandbox can do what the owner of the directory can do,
 * and no more: its root is that owner, and none of its other users is anybody of the host. docs/adr/0009-workspaces-of-sandboxes.md
 * says why.
 */
#ifndef COPPICE_MOUNTS_H
#define COPPICE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* As packages/protocol/src/mounts.ts has it. */
enum { mounts_limit = 8 };

struct host_mount {
  const char *host;     /* the directory */
  const char *identity; /* `DEVICE:INODE:BIRTH` as the daemon noted at creation, or empty */
  const char *guest;    /* its absolute path inside */
  bool read_only;
};

/* What is wrong with a mount itself, and not with us; begins with one of the words below and its number. Empty where nothing is. */
enum { mount_trouble_limit = 200 };
#define MOUNT_CHANGED "mount-changed"   /* the directory of the host is another one */
#define MOUNT_UNUSABLE "mount-unusable" /* its filesystem cannot be mapped */
#define MOUNT_BLOCKED "mount-blocked"   /* the sandbox has a link or a file on the way to its place */

/*
 * The directory as a mount that stands nowhere yet. No part of its path may be a link, it must be the directory that was noted,
 * and its owners are mapped: `first_id` is what root of the sandbox is to the kernel. -1 with errno, or with the trouble.
 */
int clone_mount(const struct host_mount *mount, size_t number, uid_t first_id, char *trouble);

/* The place in the root that it goes to, made where it is missing. No part of the way may be a link. -1 with errno, or with the trouble. */
int open_mount_place(int root, const struct host_mount *mount, size_t number, char *trouble);

#endif
