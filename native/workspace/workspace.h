/*
 * A directory of the host that a sandbox has as its /workspace. In it the sandbox can do what the owner of the directory can do,
 * and no more: its root is that owner there, and none of its other users is anybody of the host. docs/adr/0009-workspaces-of-sandboxes.md
 * says why.
 */
#ifndef COPPICE_WORKSPACE_H
#define COPPICE_WORKSPACE_H

#include <sys/types.h>

struct workspace {
  const char *path;
  const char *identity; /* `DEVICE:INODE:BIRTH` as the daemon noted at creation, or NULL */
  uid_t first_id;       /* of the host; what root of the sandbox is to the kernel */
};

/* What is wrong with the directory itself, and not with us; begins with one of the words below. Empty where nothing is. */
enum { workspace_trouble_limit = 200 };
#define WORKSPACE_CHANGED "workspace-changed: "
#define WORKSPACE_UNUSABLE "workspace-unusable: "

/*
 * The directory as a mount that stands nowhere yet. No part of its path may be a link, it must be the directory that was noted,
 * and its owners are mapped. -1 with errno, or with the trouble.
 */
int clone_workspace(const struct workspace *workspace, char *trouble);

#endif
