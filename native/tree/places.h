/* What depends on the filesystem: btrfs subvolumes, clones of files, removal of whole trees, holes. */
#ifndef COPPICE_TREE_PLACES_H
#define COPPICE_TREE_PLACES_H

#include "common.h"

const char *filesystem_name(const char *path);
bool can_reflink(const char *directory);
bool is_subvolume(const char *path);
void subvolume_create(const char *path);
void subvolume_snapshot(const char *from, const char *to, bool read_only);
/* Has everything that was written to the filesystem of a directory on the disk when it returns. */
void sync_filesystem(const char *directory);
/* Removes a tree, subvolume or not. Not being there is fine. */
void remove_tree(const char *path);
/* These two leave the time of the directory that holds `path` as it was. The first does not insist; the second is false where it cannot. */
void remove_unseen(const char *path);
bool make_unseen(const char *path);
/* The name of a directory in a worktree that a restore makes and removes, before the id of its intent. */
#define STAGING_PREFIX ".jvs-restore-"
/* Shares the bytes where the filesystem can. */
void copy_file(const char *from, const char *to);
/* Gives a part of a file back to the filesystem where that is possible. With `erase`, its bytes are zeros afterwards in any case. */
void punch(const char *path, uint64_t offset, uint64_t len, bool erase);

#endif
