/* Owners, extended attributes, modes and times of restored entries. */
#ifndef COPPICE_TREE_METADATA_H
#define COPPICE_TREE_METADATA_H

#include <sys/stat.h>

#include "node.h"

/* How many owners and attributes this user or this filesystem could not set. Several threads may count at once. */
struct refused {
  uint64_t owners, attributes;
};

/*
 * For a file that this process has just made as `name` in `dir` and holds open as `fd`. The caller made it with the permissions of its
 * record, so most files only need their time. `out` is the file's stat afterwards.
 */
void metadata_of_new(int fd, int dir, const char *name, const struct record *record, const uint8_t *xattrs, const char *path,
                     struct refused *refused, struct stat *out);
/* For any entry, by its name. `path` is for messages. */
void metadata_set(int dir, const char *name, const struct record *record, const uint8_t *xattrs, const char *path, struct refused *refused);

#endif
