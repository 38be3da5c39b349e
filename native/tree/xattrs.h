/* Extended attributes and ACLs (which are extended attributes), as one sorted run of bytes. */
#ifndef COPPICE_TREE_XATTRS_H
#define COPPICE_TREE_XATTRS_H

#include "common.h"

void xattrs_read(int dir, const char *name, const char *path, struct buf *out);
/* Makes them what `bytes` says. Answers how many the filesystem or our rights refused. */
unsigned xattrs_write(int dir, const char *name, const uint8_t *bytes, size_t len);

#endif
