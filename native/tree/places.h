/* What depends on the filesystem: btrfs subvolumes, clones of files, removal of whole trees, holes. */
#ifndef COPPICE_TREE_PLACES_H
#define COPPICE_TREE_PLACES_H

#include "common.h"

const char *filesystem_name(const char *path);
bool can_reflink(const char *directory);
bool is_subvolume(const char *path);
void subvolume_create(const char *path);
void subvolume_snapshot(const char *from, const char *to, bool read_only);
/* Removes a tree, subvolume or not. Not being there is fine. */
void remove_tree(const char *path);
/* Shares the bytes where the filesystem can. */
void copy_file(const char *from, const char *to);
/* Gives a part of a file back to the filesystem where that is possible. With `erase`, its bytes are zeros afterwards in any case. */
void punch(const char *path, uint64_t offset, uint64_t len, bool erase);

#endif
